//! The loss of a hold: when it counts as lost, and who is told.

use std::sync::Weak;

use tokio::sync::Notify;

use super::state::{Hold, Phase, State};
use super::{Core, HoldHandle};
use crate::observe;
use crate::queue::Head;
use crate::release;
use crate::values::{LockError, LostReason, Moment, clock};

/// A loss that others are still to be told of.
pub(super) struct News {
    reason: LostReason,
    head: Option<Head>,
    also_told: Vec<Weak<Notify>>,
    unclaimed: Option<HoldHandle>,
    /// Of a hold that is nobody's.
    keeper: Option<Weak<Core>>,
}

impl Hold {
    /// Returns the reason why the hold was lost, if it was. The local deadline counts from here on: it needs no timer
    /// to be true.
    pub(crate) fn loss(&self) -> Option<LostReason> {
        match self.look() {
            Phase::Lost { reason, .. } => Some(reason),
            Phase::Held | Phase::Ended => None,
        }
    }

    /// The phase by now: a hold whose time is over is lost from here on.
    pub(super) fn look(&self) -> Phase {
        let mut state = self.state.lock();
        let news = self.expire(&mut state, clock::now());
        let phase = state.phase;
        drop(state);
        self.announce(news);
        phase
    }

    /// Ends a hold whose time is over by `now`. Everything that looks at the hold or changes it under the same lock has this
    /// done first: an end and a renewal that cross are then one after the other.
    #[must_use = "announce it once the state is unlocked"]
    pub(super) fn expire(&self, state: &mut State, now: Moment) -> Option<News> {
        let reason = self.overdue(state, now)?;
        self.end(state, reason)
    }

    /// Ends the hold as lost: the first reason counts, and an ended hold cannot be lost.
    #[must_use = "announce it once the state is unlocked"]
    pub(super) fn end(&self, state: &mut State, reason: LostReason) -> Option<News> {
        if state.phase != Phase::Held {
            return None;
        }
        let unclaimed = state.take_unclaimed();
        state.phase = Phase::Lost {
            reason,
            held_for: self.held_for(),
            claimed: unclaimed.is_none(),
        };
        Some(News {
            reason,
            head: state.head.take(),
            also_told: state.take_also_told(),
            unclaimed,
            keeper: state.keeper(),
        })
    }

    /// Tells of a loss. Outside of the state's lock: this wakes others.
    pub(super) fn announce(&self, news: Option<News>) {
        let Some(news) = news else { return };
        if let Some(keeper) = news.keeper {
            // Nobody had it, so nobody is told.
            if let Some(core) = keeper.upgrade() {
                release::kept::ended(&core, self);
            }
            return;
        }
        self.tell(news.also_told);
        // This wakes the next local waiter.
        drop(news.head);
        observe::ended_by_loss(self);
        // Nobody ever had it: the store is told at once.
        match news.unclaimed {
            Some(unclaimed) => drop(unclaimed),
            None => observe::count_lost(self, news.reason),
        }
    }

    pub(super) fn overdue(&self, state: &State, now: Moment) -> Option<LostReason> {
        let ends = self.max_until().into_iter().chain(state.idle_until());
        if ends.into_iter().any(|end| now.has_reached(end)) {
            Some(LostReason::MaxHold)
        } else if now.has_reached(state.deadline) {
            Some(LostReason::Expired)
        } else {
            None
        }
    }

    /// The loss as an error.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.loss()
            .map_or(Ok(()), |reason| Err(self.lost_error(reason, false)))
    }

    /// As [`loss`](Hold::loss), for a caller that has just seen that its time is not over: reads no clock.
    pub(crate) fn known_loss(&self) -> Option<LostReason> {
        match self.state.lock().phase {
            Phase::Lost { reason, .. } => Some(reason),
            Phase::Held | Phase::Ended => None,
        }
    }

    /// Whether any caller ever had the hold, as far as is known once it is lost.
    pub(crate) fn was_claimed(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Lost { claimed: false, .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        self.look() == Phase::Held
    }

    pub(crate) fn is_over(&self) -> bool {
        self.look() != Phase::Held
    }

    /// The error of a lost hold.
    pub(crate) fn lost_error(&self, reason: LostReason, completed: bool) -> LockError {
        let held_for = match self.state.lock().phase {
            Phase::Lost { held_for, .. } => held_for,
            Phase::Held | Phase::Ended => self.held_for(),
        };
        LockError::Lost {
            name: self.key.name().to_owned(),
            held_for,
            reason,
            completed,
        }
    }

    /// Ends the hold as lost: the first reason counts, and an ended hold cannot be lost.
    pub(crate) fn lose(&self, reason: LostReason) {
        let news = self.end(&mut self.state.lock(), reason);
        self.announce(news);
    }

    /// Wakes those who wait for the end. After the state was written, and outside of its lock.
    pub(super) fn tell(&self, also_told: Vec<Weak<Notify>>) {
        if let Some(over) = self.over.get() {
            over.notify_waiters();
        }
        for over in also_told.iter().filter_map(Weak::upgrade) {
            over.notify_waiters();
        }
    }
}
