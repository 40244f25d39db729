//! A key that this process keeps while nobody here uses it (`keep_for`).
//!
//! It stands in the place of a head in the key's queue. What takes it out, under the queues' lock, decides about it: the
//! next caller of this process, or what ends it. So it ends once, and nobody is admitted under what is being given back.

use std::sync::Arc;

use super::{Head, KeyQueue, LocalQueues};
use crate::hold::{Hold, Kept};
use crate::values::{Key, Moment};

impl Head {
    /// Leaves the key to what is kept, until somebody comes. It comes back if somebody has come already, the manager closes,
    /// or others are to have a chance.
    pub(crate) fn leave_to(self, kept: Kept, now: Moment) -> Result<(), (Head, Kept)> {
        let mut guard = self.queues.state.lock();
        let state = &mut *guard;
        let number = state.number();
        let closed = state.closed;
        let Some(queue) = self.queue_in(state).filter(|_| !closed) else {
            drop(guard);
            return Err((self, kept));
        };
        if !queue.waiters.is_empty() || !queue.budget.may_keep(now) {
            drop(guard);
            return Err((self, kept));
        }
        queue.held_by = None;
        queue.kept = Some(kept);
        // This head means nothing any more: the next one has that number.
        queue.head = number;
        Ok(())
    }
}

impl KeyQueue {
    /// Takes what is kept at the key, with the turn.
    pub(super) fn take_kept(
        &mut self,
        queues: &Arc<LocalQueues>,
        key: &Arc<Key>,
    ) -> Option<(Head, Kept)> {
        let kept = self.kept.take()?;
        // The next answer of the store is news.
        self.heard = false;
        Some((Head::new(queues, key, self.head), kept))
    }
}

impl LocalQueues {
    /// Takes what is kept at the key, if it is this.
    pub(crate) fn take_kept(self: &Arc<LocalQueues>, idle: &Hold) -> Option<(Head, Kept)> {
        let mut state = self.state.lock();
        let queue = state.queues.get_mut(idle.key())?;
        let is_this = std::ptr::eq(&*queue.kept.as_ref()?.idle, idle);
        is_this.then(|| queue.take_kept(self, idle.key())).flatten()
    }

    /// Takes all that is kept.
    pub(crate) fn take_all_kept(self: &Arc<LocalQueues>) -> Vec<(Head, Kept)> {
        let mut state = self.state.lock();
        let queues = state.queues.iter_mut();
        queues
            .filter_map(|(key, queue)| queue.take_kept(self, key))
            .collect()
    }

    /// Whether this process keeps the key, and nobody here uses it.
    pub(crate) fn is_kept(&self, key: &Key) -> bool {
        self.with(key, |queue| queue.kept.is_some())
            .unwrap_or(false)
    }
}
