//! Callers that wait, in a local queue or in the store's queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::key_state::{KeyState, Sign};
use super::{Front, LocalQueues, Ticket};
use crate::backend::Fault;
use crate::values::{Key, Moment};

/// A place in a queue. Dropping it leaves the queue, and passes on a ticket that was sent already.
pub(crate) struct Waiter {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
    pub(super) given: oneshot::Receiver<Ticket>,
    /// The sign at the last look, or at the beginning.
    pub(super) last_seen: Sign,
}

impl Waiter {
    /// Waits for the ticket. Returns `None` if the queues were closed. Cancel safe.
    pub(crate) async fn ticket(&mut self) -> Option<Ticket> {
        (&mut self.given).await.ok()
    }

    /// Returns the fault of the last request of the front, if it got no answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// Returns the signal for the store's first answer about this key, if there was none yet.
    pub(crate) fn first_news(&self) -> Option<OwnedNotified> {
        // It is made under the lock, so the answer cannot come before it.
        self.change(KeyState::first_news)?
    }

    /// Passes the caller at the front over if it was silent since an earlier look of any caller: no task polls it any more. Its
    /// request may still be under way; the front goes to the first waiter. A hold is never passed over, because it ends by
    /// itself.
    pub(crate) fn look_at_front(&mut self, now: Moment) {
        let silence = self.queues.silence;
        let mut locked = self.queues.lock(&self.key);
        let number = locked.number();
        let passes = locked.change(&self.key, |state| {
            self.last_seen = state.sign();
            state.look(now, silence, number)
        });
        drop(locked);
        if passes == Some(true) {
            // The front goes to the first waiter.
            drop(Front::new(&self.queues, &self.key, number));
        }
    }

    /// Returns the label of the hold that this waiter waits for, if it is the same as at the last look. Only the first call
    /// about a hold gets it.
    pub(crate) fn blocked_by(&self) -> Option<&'static str> {
        self.change(|state| state.blocked_by(self.last_seen))?
    }

    fn change<T>(&self, change: impl FnOnce(&mut KeyState) -> T) -> Option<T> {
        self.queues.lock(&self.key).change(&self.key, change)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // With a ticket, or after the queues were closed, it is out of the queue already.
        if !self.given.is_terminated() {
            // Dropped unlocked: it wakes this caller's task.
            let _left = self.change(|state| state.leave(self.number));
        }
    }
}

/// The count of one caller that waits in the store's queue. Dropping it ends the count.
pub(crate) struct Waiting {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let shard = &mut *self.queues.lock(&self.key);
        shard.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(in_store_queue) = shard.in_store_queue.get_mut(&self.key) {
            *in_store_queue -= 1;
            if *in_store_queue == 0 {
                shard.in_store_queue.remove(&self.key);
            }
        }
    }
}
