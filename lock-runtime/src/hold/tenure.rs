//! A lock that stays with this process from one of its holds to the next, while the store is not asked.

use std::time::Duration;

use crate::backend::{Granted, Spare};
use crate::values::clock::Moment;
use crate::values::fence::FencingToken;
use crate::values::options::HoldOptions;
use crate::values::ttl::Ttl;

/// For how long the store is not asked: by then others may wait, or the lock may have been released by force.
const LENGTH: Duration = Duration::from_millis(2);
/// So many round trips at least: each tenure costs one, in which nobody has the lock.
const LENGTH_IN_ROUND_TRIPS: u32 = 4;

/// What the holds of one tenure have in common: the holder id by which the store knows them, and the lease.
///
/// A tenure goes from a hold that has ended in good order to the next one, and so ends where a hold is lost, where its
/// release is sent, and where the store is asked about it again: nobody has the lock under a holder id that may be
/// released already. It grants no time: each hold is believed in for as long as the store's last answer says.
#[derive(Debug)]
pub(crate) struct Tenure {
    ttl: Ttl,
    sent_at: Moment,
    until: Moment,
    spare: Spare,
}

impl Tenure {
    /// Begins with what the store has just granted, for that lease. `None` if nothing was set aside.
    pub(crate) fn new(
        ttl: Ttl,
        granted: Granted,
        spare: Spare,
        round_trip: Duration,
        now: Moment,
    ) -> Option<Tenure> {
        if matches!(spare, Spare::Nothing) {
            return None;
        }
        // A fraction of the lease: what is left of it is worth having, and no renewal is due yet.
        let length = LENGTH.max(round_trip * LENGTH_IN_ROUND_TRIPS);
        let length = length.min(ttl.duration() / 10);
        Some(Tenure {
            ttl,
            sent_at: granted.sent_at,
            until: now + length,
            spare,
        })
    }

    /// What a hold with these options is granted, if the tenure can serve it. Its lease is the one that the store knows:
    /// with a longer one it would be believed in for too long, with a shorter one a crash would block the key for
    /// longer than it asked for.
    pub(crate) fn grant(&mut self, options: &HoldOptions, now: Moment) -> Option<Granted> {
        if options.ttl != self.ttl || now.has_reached(self.until) {
            return None;
        }
        Some(Granted {
            token: match options.fenced {
                true => Some(self.token(now)?),
                false => None,
            },
            sent_at: self.sent_at,
        })
    }

    fn token(&mut self, now: Moment) -> Option<FencingToken> {
        match &mut self.spare {
            Spare::Tokens(tokens) => tokens.take(now),
            Spare::Nothing | Spare::Untokened => None,
        }
    }
}

#[cfg(test)]
mod tests;
