//! Those who wait: in a local queue, or in the store's.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{Head, LocalQueues, Ticket};
use crate::backend::Fault;
use crate::values::Key;

/// A place in a queue. Dropped, it leaves the queue; a ticket that was given already is passed on.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
    pub(super) given: oneshot::Receiver<Ticket>,
    /// The head, and what was heard of it, at the last look.
    pub(super) last_seen: Option<(u64, u64)>,
    /// Its turn has come, or the queues were closed: that has taken the waiter out of the queue.
    pub(super) is_out: bool,
}

impl Waiter {
    /// Waits for the ticket. `None`: the queues were closed. Cancel safe.
    pub(crate) async fn ticket(&mut self) -> Option<Ticket> {
        let ticket = (&mut self.given).await.ok();
        self.is_out = true;
        ticket
    }

    /// The last failure of the store, if the head got no answer from it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// If nothing was heard from the store about this key yet: what is raised when something is.
    pub(crate) fn first_news(&self) -> Option<OwnedNotified> {
        self.queues
            .with(&self.key, |queue| {
                // Made under the lock: the news cannot come before it.
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

    /// Passes the caller at the head over if nothing was heard of it since the last look: nobody polls it any more. What
    /// it asked of the store is its own affair; the turn goes to the next waiter. The looks must be further apart than
    /// a caller that is polled needs between two signs of life. A hold is never passed over: it ends by itself.
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
        // Unlocked: it goes to the first in the queue.
        drop(head);
    }

    /// The label of the hold that this waiter waits for, the first time somebody asks about that hold.
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

/// One caller who waits in the store's queue, counted until this is dropped.
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
