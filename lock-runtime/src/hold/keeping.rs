//! A lock that this process keeps between its holds (`keep_for`).
//!
//! The store knows one holder id for all of it. There are two in this process who can have the lock under that id, one at a
//! time: a hold of a caller, or the idle hold, which no caller sees. The watchdog renews whichever of them has it, and a
//! loss ends that one. What is needed to go from one to the other without the store is the [`Keeping`], of which there is
//! one: the hold of a caller carries it, or it lies in the queue with the idle hold.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::state::{Hold, Phase, Rare, State};
use crate::backend::{Granted, Renewal, Spare};
use crate::queue::Head;
use crate::values::{FencingToken, HoldOptions, HolderId, Key, Moment, Ttl, clock};

/// The state that goes from hold to hold while the process keeps the lock.
#[derive(Debug)]
pub(crate) struct Keeping {
    /// The hold of nobody, which has the lock while no caller has it.
    idle: Arc<Hold>,
    ttl: Ttl,
    /// Of the request that began it. What the store has confirmed since then, the hold that has the lock knows.
    sent_at: Moment,
    spare: Spare,
    /// The box that the hold before had it in, for the next one.
    pub(super) emptied: Option<Box<Rare>>,
}

/// A lock that nobody in this process uses, and that it keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) idle: Arc<Hold>,
    /// Boxed once, and moved from hold to hold.
    keeping: Box<Keeping>,
}

impl Kept {
    /// Begins with what the store has just granted to `holder`, for nobody.
    pub(crate) fn new(
        core: &Arc<Core>,
        key: &Arc<Key>,
        holder: HolderId,
        options: HoldOptions,
        granted: Granted,
        spare: Spare,
        now: Moment,
    ) -> Kept {
        let keep_for = options.keep_for.unwrap_or_default();
        let idle = Hold::idle(core, key, holder, options, granted, now + keep_for);
        let keeping = Box::new(Keeping {
            idle: idle.clone(),
            ttl: options.ttl,
            sent_at: granted.sent_at,
            spare,
            emptied: None,
        });
        Kept { idle, keeping }
    }

    /// Returns the state of the next hold, if a hold with these options is possible: the same lease, for a crash must
    /// not block the key for longer than it asks for, and a lease that is renewed, for some of it is over.
    pub(super) fn grant(&mut self, options: &HoldOptions, now: Moment) -> Option<Granted> {
        let wants_renewal = options.renewed || options.keep_for.is_some();
        if !wants_renewal || options.ttl != self.keeping.ttl || !self.idle.wakes_up(now) {
            return None;
        }
        let token = match options.fenced {
            true => Some(self.keeping.token(now)?),
            false => None,
        };
        let sent_at = self.keeping.sent_at;
        Some(Granted { token, sent_at })
    }

    pub(super) fn into_keeping(self) -> Box<Keeping> {
        self.keeping
    }
}

impl Keeping {
    fn token(&mut self, now: Moment) -> Option<FencingToken> {
        match &mut self.spare {
            Spare::Tokens(tokens) => tokens.take(now).or_else(|| tokens.take_soon()),
            Spare::Nothing | Spare::Untokened => None,
        }
    }

    pub(super) fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Lets the idle hold have the lock for so long, unless the store is to be asked for tokens first. Whether that hold was
    /// ended meanwhile is seen once it lies in the queue.
    pub(super) fn falls_idle(self: Box<Self>, keep_for: Duration, now: Moment) -> Option<Kept> {
        let has_tokens = match &self.spare {
            Spare::Nothing => false,
            Spare::Untokened => true,
            Spare::Tokens(tokens) => !tokens.is_empty(),
        };
        if !has_tokens {
            return None;
        }
        let idle = self.idle.clone();
        idle.state.lock().set_idle_until(Some(now + keep_for));
        Some(Kept {
            idle,
            keeping: self,
        })
    }
}

/// The further fields of a hold that is nobody's.
#[derive(Debug)]
pub(super) struct Idle {
    /// Gives the lock back when the hold is over.
    keeper: Weak<Core>,
    /// The moment at which it is over. `None` while a caller has the lock.
    until: Option<Moment>,
}

impl State {
    fn idle(&self) -> Option<&Idle> {
        self.rare.as_ref()?.idle.as_ref()
    }

    pub(super) fn idle_until(&self) -> Option<Moment> {
        self.idle()?.until
    }

    /// Returns the core that gives the lock back when a hold of nobody is over. `None` for the hold of a caller.
    pub(super) fn keeper(&self) -> Option<Weak<Core>> {
        Some(self.idle()?.keeper.clone())
    }

    fn set_idle_until(&mut self, until: Option<Moment>) {
        if let Some(idle) = &mut self.rare().idle {
            idle.until = until;
        }
    }
}

impl Hold {
    /// A hold of nobody, until then.
    fn idle(
        core: &Arc<Core>,
        key: &Arc<Key>,
        holder: HolderId,
        options: HoldOptions,
        granted: Granted,
        until: Moment,
    ) -> Arc<Hold> {
        let hold = Hold::new(
            key.clone(),
            None,
            holder,
            options,
            granted,
            core.life.clone(),
        );
        let idle = Idle {
            keeper: Arc::downgrade(core),
            until: Some(until),
        };
        hold.state.lock().rare().idle = Some(idle);
        hold
    }

    /// Whether it is nobody's: the process keeps the lock.
    pub(crate) fn is_idle(&self) -> bool {
        self.holder.keeps() && self.state.lock().idle().is_some()
    }

    /// Ends the idle time, if it is not over, and enough is left of the lease.
    fn wakes_up(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        let goes = state.phase == Phase::Held
            && self.overdue(&state, now).is_none()
            && state.deadline - now >= state.ttl.least_useful();
        if goes {
            state.set_idle_until(None);
        }
        goes
    }

    /// The hold has this process's turn at the key, unless it is lost already: then the next waiter has it.
    pub(super) fn owns(&self, head: Head) {
        let mut state = self.state.lock();
        if state.phase == Phase::Held {
            state.head = Some(head);
            return;
        }
        drop(state);
        drop(head);
    }

    /// Returns the renewal that the watchdog asks of the store, if it still has the hold and the hold is not lost. A
    /// hold that has ended is on its way to the next, which wants the lease; should it be given back instead, the
    /// request finds nothing, or is soon undone.
    pub(crate) fn renewal_if_watched(&self, now: Moment) -> Option<Renewal> {
        let mut state = self.state.lock();
        let is_lost = matches!(state.phase, Phase::Lost { .. });
        if is_lost || self.overdue(&state, now).is_some() {
            return None;
        }
        let renewal = self.renewal_in(&mut state);
        let wanted = (state.phase == Phase::Ended).then_some(state.ttl);
        Some(Renewal {
            ttl: renewal.ttl.or(wanted),
            ..renewal
        })
    }

    /// Takes in that the store has confirmed the holder, also while the lock is on its way from one hold to the next: that
    /// one [`inherits`](Hold::inherits) it. A hold whose end has come is not brought back.
    pub(crate) fn is_confirmed(&self, asked: &Renewal, sent_at: Moment) {
        let mut state = self.state.lock();
        if self.overdue(&state, clock::now()).is_none() {
            state.confirm(asked, sent_at);
        }
    }

    /// Until when the store has confirmed the holder, for the hold that follows. `None` if it was lost.
    pub(crate) fn leaves_behind(&self) -> Option<Moment> {
        let state = self.state.lock();
        let is_lost = matches!(state.phase, Phase::Lost { .. });
        (!is_lost).then_some(state.deadline)
    }

    /// Takes over until when the store has confirmed the holder, which was another hold's before. When it is over if nothing
    /// else happens. Under the watchdog's lock, where confirmations come in.
    pub(crate) fn inherits(&self, confirmed: Moment) -> Moment {
        let mut state = self.state.lock();
        state.deadline = confirmed;
        self.end_in(&state)
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
