//! A key that this process keeps while none of its callers holds the lock (`keep_for`).
//!
//! The idle tenure lies in the key's queue, and has the head. A caller that takes the lock takes the tenure out, with both
//! the shard and the tenure locked. Any other code ends the tenure first, and then takes it out. So the lock is released
//! once, and no caller begins a turn in a tenure that is being released.

use std::sync::Arc;

use super::{Entered, Head, KeyQueue, LocalQueues, Locked};
use crate::hold::{Taken, Tenure, Turn};
use crate::values::{HoldOptions, Key, Moment};

impl KeyQueue {
    /// Serves a caller from the idle tenure. Returns `None` if there is none, or if it has ended: then the caller waits until
    /// the lock is released.
    pub(super) fn take_idle(&mut self, hold_options: &HoldOptions, now: Moment) -> Option<Entered> {
        let entered = match self.idle.as_ref()?.take(hold_options, now) {
            Taken::Held(hold) => {
                self.held_by(hold_options.label.lock);
                Entered::Held(hold)
            }
            Taken::Unsuited(turn) => {
                self.heard = false;
                Entered::Unsuited(self.idle.clone()?, Box::new(turn))
            }
            Taken::Over => return None,
        };
        self.idle = None;
        Some(entered)
    }
}

impl Locked<'_> {
    /// Puts an idle tenure into the queue. Returns `false` if a caller waits, if the manager closes, or if the process has kept
    /// the key for its whole time.
    pub(crate) fn leave_to(&mut self, head: &Head, tenure: &Arc<Tenure>, now: Moment) -> bool {
        let closed = self.0.closed;
        let Some(queue) = head.queue_in(&mut self.0) else {
            return false;
        };
        if closed || !queue.waiters.is_empty() || !queue.slice.may_keep(now) {
            return false;
        }
        queue.held_by = None;
        queue.idle = Some(tenure.clone());
        true
    }
}

impl LocalQueues {
    /// Takes a tenure that is not idle any more out of its queue. Its head is in use from now on, so waiters wait for the
    /// store's next answer.
    pub(crate) fn idles_no_more(&self, tenure: &Tenure) {
        self.with(tenure.key(), |queue| {
            let is_this = |idle: &mut Arc<Tenure>| std::ptr::eq(&**idle, tenure);
            if queue.idle.take_if(is_this).is_some() {
                queue.heard = false;
            }
        });
    }

    /// Ends all idle tenures. Returns each with the turn that has its head.
    pub(crate) fn end_all_idle(&self, now: Moment) -> Vec<(Arc<Tenure>, Turn)> {
        let mut ended = Vec::new();
        for shard in &self.shards {
            for queue in shard.lock().queues.values_mut() {
                // Other code that ended a tenure also takes it out.
                if let Some(tenure) = &queue.idle
                    && let Some(turn) = tenure.stop_idling(now)
                {
                    ended.push((tenure.clone(), turn));
                    queue.idle = None;
                    queue.heard = false;
                }
            }
        }
        ended
    }

    /// Returns `true` if this process keeps the key and none of its callers holds it.
    pub(crate) fn is_kept(&self, key: &Key) -> bool {
        self.with(key, |queue| queue.idle.is_some())
            .unwrap_or(false)
    }

    #[cfg(test)]
    pub(crate) fn idle_at(&self, key: &Key) -> Option<Arc<Tenure>> {
        self.with(key, |queue| queue.idle.clone()).flatten()
    }
}
