//! A lock that stays with this process from one of its holds to the next, while the store is not asked.

use super::state::Rare;
use crate::backend::{Granted, Spare};
use crate::values::{FencingToken, HoldOptions, Moment, Ttl, UnusedTokens};

/// The state that the holds of one tenure have in common: the holder id by which the store knows them, and the lease.
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
    /// The box that the hold before had it in, for the next one.
    pub(super) emptied: Option<Box<Rare>>,
}

impl Tenure {
    /// Begins with what the store has just granted, for that lease, and lasts `until` then at the latest. `None` if
    /// nothing was set aside.
    pub(crate) fn new(ttl: Ttl, granted: Granted, spare: Spare, until: Moment) -> Option<Tenure> {
        if matches!(spare, Spare::Nothing) {
            return None;
        }
        Some(Tenure {
            ttl,
            sent_at: granted.sent_at,
            until,
            spare,
            emptied: None,
        })
    }

    /// Returns the grant for a hold with these options, if the tenure can serve it. Its lease is the one that the store
    /// knows: with a longer one it would be believed in for too long, with a shorter one a crash would block the key
    /// for longer than it asked for.
    pub(crate) fn grant(&mut self, options: &HoldOptions, now: Moment) -> Option<Granted> {
        let left = self.sent_at + self.ttl.trusted() - now;
        // Its caller would give back what has too little left, and lose its place in the queue.
        let is_worth_it = left >= self.ttl.least_useful();
        if options.ttl != self.ttl || now.has_reached(self.until) || !is_worth_it {
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

    /// The tokens that no hold of the tenure has had. There is none after it.
    pub(crate) fn unused(self) -> Option<UnusedTokens> {
        match self.spare {
            Spare::Tokens(tokens) => tokens.unused(),
            Spare::Nothing | Spare::Untokened => None,
        }
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
