//! Callers that wait, in a local queue or in the store's queue.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{Head, LocalQueues, Ticket};
use crate::backend::Fault;
use crate::values::Key;

/// A place in a queue. Dropping it leaves the queue, and passes on a ticket that was sent already.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
    pub(super) given: oneshot::Receiver<Ticket>,
    /// The head, and its count of answers, at the last look.
    pub(super) last_seen: Option<(u64, u64)>,
    /// Whether the waiter was taken out of the queue: its ticket was sent, or the queues were closed.
    pub(super) is_out: bool,
}

impl Waiter {
    /// Waits for the ticket. Returns `None` if the queues were closed. Cancel safe.
    pub(crate) async fn ticket(&mut self) -> Option<Ticket> {
        let ticket = (&mut self.given).await.ok();
        self.is_out = true;
        ticket
    }

    /// Returns the fault of the last request of the head, if it got no answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// Returns the signal for the store's first answer about this key, if there was none yet.
    pub(crate) fn first_news(&self) -> Option<OwnedNotified> {
        self.queues
            .with(&self.key, |queue| {
                // It is made under the lock, so the answer cannot come before it.
                (!queue.heard).then(|| {
                    queue
                        .awaited
                        .get_or_insert_default()
                        .clone()
                        .notified_owned()
                })
            })
            .flatten()
    }

    /// Passes the caller at the head over if it got no answer since the last look: no task polls it any more. Its request may
    /// still be under way; the head goes to the next waiter. Between two looks must be more time than between two answers of
    /// a caller that is polled. A hold is never passed over, because it ends by itself.
    pub(crate) fn look_at_head(&mut self) {
        let head = {
            let mut guard = self.queues.shard(&self.key);
            let shard = &mut *guard;
            let number = shard.number();
            let Some(queue) = shard.queues.get_mut(&self.key) else {
                return;
            };
            let seen = Some((queue.head, queue.signs));
            if std::mem::replace(&mut self.last_seen, seen) != seen
                || queue.held_by.is_some()
                || !queue.waiters.contains_key(&self.number)
            {
                return;
            }
            queue.head = number;
            Head::new(&self.queues, &self.key, number)
        };
        // The lock is released here. The head goes to the first waiter.
        drop(head);
    }

    /// Returns the label of the hold that this waiter waits for. Only the first call about a hold gets it.
    pub(crate) fn blocked_by(&self) -> Option<&'static str> {
        self.queues
            .with(&self.key, |queue| {
                let first = !std::mem::replace(&mut queue.warned, true);
                queue.held_by.filter(|_| first)
            })
            .flatten()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_out {
            return;
        }
        let mut shard = self.queues.shard(&self.key);
        let queue = shard.queues.get_mut(&self.key);
        if queue.is_some_and(|queue| queue.waiters.remove(&self.number).is_some()) {
            shard.wait_no_more(1);
        }
    }
}

/// The count of one caller that waits in the store's queue. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut shard = self.queues.shard(&self.key);
        shard.wait_no_more(1);
        if let Some(in_store_queue) = shard.in_store_queue.get_mut(&self.key) {
            *in_store_queue -= 1;
            if *in_store_queue == 0 {
                shard.in_store_queue.remove(&self.key);
            }
        }
    }
}
