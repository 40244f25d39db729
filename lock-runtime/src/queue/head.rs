//! The head's turn at a key, and whom it is handed over to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::{InQueue, KeyQueue, LocalQueues, Locked, Shard, Ticket};
use crate::backend::Fault;
use crate::queue::slice::Slice;
use crate::release::place::Place;
use crate::values::{HoldOptions, Key, KeyMap, LockError};

/// The waiters of some moment: those up to this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar(u64);

/// This process's turn at a key. Dropped, it goes to the next waiter; when there is none, the queue is gone.
///
/// One that was passed over means nothing any more: its owner deals with the store beside the new head, and excludes
/// nobody by it.
pub(crate) struct Head {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
}

impl Head {
    pub(super) fn new(queues: &Arc<LocalQueues>, key: &Arc<Key>, number: u64) -> Head {
        Head {
            queues: queues.clone(),
            key: key.clone(),
            number,
        }
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Decides when to hand over, and when to leave the key to other processes.
    pub(crate) fn slice<T>(&self, read: impl FnOnce(&mut Slice) -> T) -> Option<T> {
        self.queues.lock(&self.key).slice(self, read)
    }

    /// Notes that the head only lets other processes ask first, from now on.
    pub(crate) fn rests(&self) {
        self.with(|queue| queue.rests = true);
    }

    /// Follows another caller at the head. Takes the place on the store's list that it left.
    pub(crate) fn takes_over(&self) -> Option<Box<Place>> {
        self.with(|queue| {
            queue.slice.begins_anew();
            queue.place.take()
        })?
    }

    /// Leaves the place to the next caller at the head. If nobody comes, it is dropped.
    pub(crate) fn leave_place(&self, place: Box<Place>) {
        // What this replaces, or nobody takes, is dropped without the lock.
        let mut place = Some(place);
        self.with(|queue| std::mem::swap(&mut queue.place, &mut place));
    }

    fn with<T>(&self, read: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.queue_in(&mut self.queues.shard(&self.key)).map(read)
    }

    /// The queue, if this is still its head.
    pub(super) fn queue_in<'a>(&self, shard: &'a mut Shard) -> Option<&'a mut KeyQueue> {
        self.queue_of(&mut shard.queues)
    }

    fn queue_of<'a>(&self, queues: &'a mut KeyMap<KeyQueue>) -> Option<&'a mut KeyQueue> {
        let queue = queues.get_mut(&self.key)?;
        (queue.head == self.number).then_some(queue)
    }

    /// Counts the caller who is the head among those who wait, if the caps allow one more. A caller who was counted in the
    /// queue still is.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    pub(crate) fn count_as_waiting(&self) -> Result<(), LockError> {
        let mut shard = self.queues.shard(&self.key);
        let Some(queue) = self.queue_in(&mut shard).filter(|queue| !queue.head_waits) else {
            return Ok(());
        };
        let here = queue.waiting();
        self.queues.admit(&self.key, here)?;
        queue.head_waits = true;
        Ok(())
    }

    /// Returns the number of callers that wait behind the head.
    pub(crate) fn waiters(&self) -> u64 {
        let waiters = self.with(|queue| queue.waiters.len());
        u64::try_from(waiters.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Notes what the store said, for waiters whose time runs out behind this head.
    pub(crate) fn heard_from_store(&self, fault: Option<&Fault>) {
        self.with(|queue| queue.heard_from_store(fault.cloned()));
    }

    /// The last failure of the store, if the previous head got no answer from it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// Notes that a hold owns the head from now on.
    pub(crate) fn now_held_by(&self, label: &'static str) {
        self.queues.lock(&self.key).held_by(self, label);
    }

    /// Marks who waits by now: before a question whose answer is for them, and for nobody who comes later.
    pub(crate) fn so_far(&self) -> SoFar {
        SoFar(self.queues.shard(&self.key).next_number)
    }

    /// Lets everybody go who waits: the store admits them together.
    pub(crate) fn let_all_go(self) {
        self.let_go(SoFar(u64::MAX));
    }

    /// Lets those go who waited at the mark. The turn goes to the next of the others.
    pub(crate) fn let_go(self, mark: SoFar) {
        let queue = {
            let mut shard = self.queues.shard(&self.key);
            let queue = self.queue_in(&mut shard).map(|queue| {
                let later = queue.waiters.split_off(&mark.0.saturating_add(1));
                std::mem::replace(&mut queue.waiters, later)
            });
            let queue = queue.unwrap_or_default();
            shard.wait_no_more(queue.len());
            queue
        };
        for (_, waiter) in queue {
            // A waiter that has just left needs nothing.
            let _ = waiter.ticket.send(Ticket::Go);
        }
    }

    /// The waiter to hand the hold over to: the next one, if there is one and the slice is not over.
    pub(crate) fn successor(&self) -> Option<Successor> {
        let mut shard = self.queues.shard(&self.key);
        let queue = self.queue_in(&mut shard)?;
        if queue.waiters.is_empty() {
            return None;
        }
        if !queue.slice.may_hand_over() {
            return None;
        }
        self.next_if(&mut shard, |_| true)
    }

    /// Takes out the first of those who still wait, if it `suits`.
    fn next_if(
        &self,
        shard: &mut Shard,
        mut suits: impl FnMut(&HoldOptions) -> bool,
    ) -> Option<Successor> {
        let Shard {
            queues, waiting, ..
        } = shard;
        let queue = self.queue_of(queues)?;
        loop {
            let first = queue.waiters.first_entry()?;
            let has_left = first.get().ticket.is_closed();
            if !has_left && !suits(&first.get().hold_options) {
                return None;
            }
            let InQueue {
                ticket,
                hold_options,
            } = first.remove();
            waiting.fetch_sub(1, Ordering::Relaxed);
            if !has_left {
                return Some(Successor {
                    ticket,
                    hold_options,
                });
            }
        }
    }
}

impl Locked<'_> {
    /// The waiter to pass the lock to without the store: the next one, if there is one that `suits`.
    pub(crate) fn next_if(
        &mut self,
        head: &Head,
        suits: impl FnMut(&HoldOptions) -> bool,
    ) -> Option<Successor> {
        head.next_if(&mut self.0, suits)
    }

    /// Notes that a caller who has the lock owns the head from now on.
    pub(crate) fn held_by(&mut self, head: &Head, label: &'static str) {
        if let Some(queue) = head.queue_in(&mut self.0) {
            queue.held_by(label);
            self.0.count_head(&head.key, false);
        }
    }

    /// Notes that no caller has the lock any more. Its release may be left to a caller who is not polled any more. Whether
    /// nobody waits behind the head.
    pub(crate) fn held_no_more(&mut self, head: &Head) -> bool {
        head.queue_in(&mut self.0).is_none_or(|queue| {
            queue.held_by = None;
            queue.waiters.is_empty()
        })
    }

    /// See [`Head::slice`].
    pub(crate) fn slice<T>(
        &mut self,
        head: &Head,
        read: impl FnOnce(&mut Slice) -> T,
    ) -> Option<T> {
        let queue = head.queue_in(&mut self.0)?;
        Some(read(&mut queue.slice))
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        // The place of a queue that is gone is dropped without the lock.
        let (next, _gone) = {
            let mut shard = self.queues.shard(&self.key);
            if self.queue_in(&mut shard).is_none() {
                return;
            }
            let next = shard.pop(&self.key);
            // The next one goes on waiting, and was counted in the queue.
            shard.count_head(&self.key, next.is_some());
            let number = shard.number();
            let gone = match (&next, shard.queues.get_mut(&*self.key)) {
                (Some(_), Some(queue)) => {
                    queue.head = number;
                    (queue.held_by, queue.rests) = (None, false);
                    // The one before may have been admitted: what the store says to the next one is news.
                    queue.heard &= self.key.kind().is_exclusive();
                    None
                }
                _ => shard.queues.remove(&*self.key),
            };
            (next.map(|waiter| (waiter, number)), gone)
        };
        if let Some((waiter, number)) = next {
            let head = Head::new(&self.queues, &self.key, number);
            // A waiter that has just left gives its turn back as the error; dropping that passes it on.
            let _ = waiter.ticket.send(Ticket::Head(head));
        }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Head").field(&self.key).finish()
    }
}

/// A waiter that a hold is being handed over to.
#[derive(Debug)]
pub(crate) struct Successor {
    ticket: oneshot::Sender<Ticket>,
    pub(crate) hold_options: HoldOptions,
}

impl Successor {
    /// Gives the successor its ticket, or it back if the successor has left meanwhile: dropped, it is passed on.
    pub(crate) fn give(self, ticket: Ticket) -> Option<Ticket> {
        if let Ticket::Head(head) = &ticket {
            // It goes on waiting, and needs no leave: it was counted in the queue.
            let mut shard = head.queues.shard(&head.key);
            if head.queue_in(&mut shard).is_some() {
                shard.count_head(&head.key, true);
            }
        }
        self.ticket.send(ticket).err()
    }
}
