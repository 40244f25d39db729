//! The sharing of a hold: guards join it and leave it, and the last one ends it.

use std::sync::Arc;
use std::time::Duration;

use super::keeping::{Keeping, Kept};
use super::state::{Hold, Phase, State};
use super::tenure::Tenure;
use crate::queue::Head;
use crate::values::{HoldOptions, Kind, LockError, LostReason, Moment, clock};

/// The parts that the last sharer takes along when it leaves.
#[expect(
    clippy::large_enum_variant,
    reason = "moved at the end of a hold and never kept: a box would cost each release an allocation"
)]
pub(crate) enum Left {
    /// Others still share the hold.
    Shared,
    /// The last writer left, and readers still share the hold: downgrade it. With this process's turn at the key.
    Reading(Option<Head>),
    /// The hold was good: release it. With this process's turn at the key, if it owned that.
    Good {
        head: Option<Head>,
        left_at: Moment,
        /// Until when the key stays taken.
        keep_until: Option<Moment>,
        /// The tenure under which the next hold may begin without the store.
        tenure: Option<Tenure>,
        /// The time for which the process keeps the lock.
        keep_for: Option<Duration>,
        /// The state that it takes to keep the lock without the store.
        keeping: Option<Box<Keeping>>,
        /// It goes on in this.
        kept: Option<Kept>,
    },
    /// The hold was lost before; whether this was its last sharer.
    Lost { reason: LostReason, last: bool },
}

impl Hold {
    /// Counts one more sharer who wants the hold renewed. True if a renewal is due by now.
    pub(crate) fn add_renewer(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.renewers += 1;
        let since_confirmed = state.ttl.trusted().saturating_sub(state.deadline - now);
        let is_due = since_confirmed > state.ttl.cadence();
        // A check that is under way does not extend the lease: another request must follow it.
        state.lengthen |= is_due;
        is_due
    }

    /// Adds a sharer with its options; tells whether the lease is to be lengthened, so that the watchdog should look
    /// at it now. `None` if the hold was released meanwhile.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the hold is lost, and somebody still shares it.
    pub(crate) fn share(
        &self,
        hold_options: HoldOptions,
        kind: Kind,
    ) -> Result<Option<bool>, LockError> {
        let mut state = self.state.lock();
        let news = self.expire(&mut state, clock::now());
        if let Phase::Lost { reason, .. } = state.phase {
            let is_left = state.sharers == 0;
            drop(state);
            self.announce(news);
            return if is_left {
                Ok(None)
            } else {
                Err(self.lost_error(reason, false))
            };
        }
        if state.phase != Phase::Held || (kind == Kind::Write && state.writers == 0) {
            return Ok(None);
        }
        state.writers += usize::from(kind == Kind::Write);
        state.sharers += 1;
        state.renewers += usize::from(hold_options.renewed);
        let longer = hold_options.ttl > state.ttl;
        if longer {
            state.ttl = hold_options.ttl;
            state.lengthen = true;
        }
        Ok(Some(longer))
    }

    /// Takes a sharer out. The key stays taken until its `keep_until`, no matter which sharer leaves last.
    pub(crate) fn leave(
        &self,
        kind: Kind,
        renewed: bool,
        keep_until: Option<Moment>,
        now: Moment,
    ) -> Left {
        let mut state = self.state.lock();
        let news = self.expire(&mut state, now);
        if let Some(keep_until) = keep_until {
            let latest = &mut state.rare().keep_until;
            *latest = Some(latest.map_or(keep_until, |latest| latest.later(keep_until)));
        }
        state.sharers -= 1;
        state.renewers -= usize::from(renewed);
        state.writers -= usize::from(kind == Kind::Write);
        if let Phase::Lost { reason, .. } = state.phase {
            let last = state.sharers == 0;
            drop(state);
            self.announce(news);
            return Left::Lost { reason, last };
        }
        if state.sharers > 0 {
            return match kind {
                Kind::Write => self.after_a_writer(&mut state),
                _ => Left::Shared,
            };
        }
        state.phase = Phase::Ended;
        let head = state.head.take();
        let also_told = state.take_also_told();
        let keep_until = state.rare.as_ref().and_then(|rare| rare.keep_until);
        let keep_until = keep_until.filter(|until| !now.has_reached(*until));
        // Without the turn, or while the key is to stay taken, nobody follows.
        let tenure = state.take_tenure();
        let mut tenure = tenure.filter(|_| head.is_some() && keep_until.is_none());
        let rare = state.rare.as_mut();
        let (keep_for, keeping) =
            rare.map_or((None, None), |rare| (rare.keep_for, rare.keeping.take()));
        // A nested request may have asked for a longer lease.
        let mut keeping =
            keeping.filter(|keeping| keeping.ttl() == state.ttl && keep_until.is_none());
        let goes_on = match (&mut tenure, &mut keeping) {
            (Some(tenure), _) => Some(&mut tenure.emptied),
            (None, Some(keeping)) => Some(&mut keeping.emptied),
            (None, None) => None,
        };
        if let Some(emptied) = goes_on {
            *emptied = state.rare.take();
        }
        drop(state);
        self.tell(also_told);
        Left::Good {
            head,
            left_at: now,
            // It ends the key's time with this process, so nothing is kept after it.
            keep_for: keep_for.filter(|_| keep_until.is_none()),
            keeping,
            kept: None,
            keep_until,
            tenure,
        }
    }

    /// Makes one of those who write a reader.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub(crate) fn stop_writing(&self) -> Result<Left, LockError> {
        self.check()?;
        let mut state = self.state.lock();
        if let Phase::Lost { reason, .. } = state.phase {
            drop(state);
            return Err(self.lost_error(reason, false));
        }
        state.writers -= 1;
        Ok(self.after_a_writer(&mut state))
    }

    /// A writer stopped to write, and somebody goes on reading: the last one makes the hold one of a read.
    pub(super) fn after_a_writer(&self, state: &mut State) -> Left {
        if state.writers > 0 {
            return Left::Shared;
        }
        // From here on it is renewed and released as a read, which knows both forms in the store.
        let _ = self.downgraded.set(Arc::new(self.key.as_kind(Kind::Read)));
        Left::Reading(state.head.take())
    }
}

#[cfg(test)]
mod tests;
