//! The right of one caller per process to deal with the store at a key, and the choice of the next one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::{InQueue, KeyQueue, LocalQueues, Locked, Shard, Ticket};
use crate::backend::Fault;
use crate::queue::slice::Slice;
use crate::release::place::Place;
use crate::values::{HoldOptions, Key, KeyMap, LockError, Moment};

/// The waiters of one moment: those whose numbers are not higher than this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar(u64);

/// This process's front at a key. A head that is dropped goes to the next waiter. Without a waiter, the queue is deleted.
///
/// A head that was passed over changes nothing. Its owner may still send requests to the store, beside the owner of the new
/// head; the store decides between them.
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

    /// Reads or changes the slice, which decides when the lock is handed over and when the process rests.
    pub(crate) fn slice<T>(&self, read: impl FnOnce(&mut Slice) -> T) -> Option<T> {
        self.queues.lock(&self.key).slice(self, read)
    }

    /// Notes that the head only lets other processes ask first, from now on.
    pub(crate) fn rests(&self, until: Moment) {
        self.with(|queue| queue.rests_until = Some(until));
    }

    /// Notes that a caller follows another one at the head. Returns the place on the store's list that the other one left.
    pub(crate) fn takes_over(&self) -> Option<Box<Place>> {
        self.with(|queue| {
            queue.slice.begins_anew();
            queue.place.take()
        })?
    }

    /// Leaves the place to the next caller at the head. Without a next caller, the place is dropped with the queue.
    pub(crate) fn leave_place(&self, place: Box<Place>) {
        // The place that this one replaces is dropped after the lock is released.
        let mut place = Some(place);
        self.with(|queue| std::mem::swap(&mut queue.place, &mut place));
    }

    fn with<T>(&self, read: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.queue_in(&mut self.queues.shard(&self.key)).map(read)
    }

    /// Returns the queue, if this is still its head.
    pub(super) fn queue_in<'a>(&self, shard: &'a mut Shard) -> Option<&'a mut KeyQueue> {
        self.queue_of(&mut shard.queues)
    }

    fn queue_of<'a>(&self, queues: &'a mut KeyMap<KeyQueue>) -> Option<&'a mut KeyQueue> {
        let queue = queues.get_mut(&self.key)?;
        (queue.head == self.number).then_some(queue)
    }

    /// Counts the caller at the head as waiting, if the caps allow one more. A caller that came from the queue is counted
    /// already.
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

    /// Notes the outcome of a request, for waiters whose time runs out behind this head.
    pub(crate) fn heard_from_store(&self, fault: Option<&Fault>) {
        self.with(|queue| queue.heard_from_store(fault.cloned()));
    }

    /// Returns the fault of the last request, if it got no answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// Notes that a hold owns the head from now on.
    pub(crate) fn now_held_by(&self, label: &'static str) {
        self.queues.lock(&self.key).held_by(self, label);
    }

    /// Marks the callers that wait now. The answer to the request that follows is valid for them, and not for later ones.
    pub(crate) fn so_far(&self) -> SoFar {
        SoFar(self.queues.shard(&self.key).next_number)
    }

    /// Lets all waiters ask for themselves: the store admits them together.
    pub(crate) fn let_all_go(self) {
        self.let_go(SoFar(u64::MAX));
    }

    /// Lets the waiters of the mark ask for themselves. The head goes to the first of the other waiters.
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
            // A waiter that has just left needs no ticket.
            let _ = waiter.ticket.send(Ticket::Go);
        }
    }

    /// Takes out the waiter to which the lock is handed over: the next one, if there is one and the slice is not over.
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

    /// Takes out the first caller that still waits, if it `suits`.
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
    /// Takes out the waiter that gets the lock without a request: the next one, if it `suits`.
    pub(crate) fn next_if(
        &mut self,
        head: &Head,
        suits: impl FnMut(&HoldOptions) -> bool,
    ) -> Option<Successor> {
        head.next_if(&mut self.0, suits)
    }

    /// Notes that a caller that holds the lock owns the head from now on.
    pub(crate) fn held_by(&mut self, head: &Head, label: &'static str) {
        if let Some(queue) = head.queue_in(&mut self.0) {
            queue.held_by(label);
            self.0.count_head(&head.key, false);
        }
    }

    /// Notes that no caller holds the lock any more, so that the head can be passed over: a caller that is not polled any more
    /// may own the release. Returns `true` if no caller waits behind the head.
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
        // A deleted queue, with its place, is dropped after the lock is released.
        let (next, _gone) = {
            let mut shard = self.queues.shard(&self.key);
            if self.queue_in(&mut shard).is_none() {
                return;
            }
            let next = shard.pop(&self.key);
            // The next caller still waits, so it is counted.
            shard.count_head(&self.key, next.is_some());
            let number = shard.number();
            let gone = match (&next, shard.queues.get_mut(&*self.key)) {
                (Some(_), Some(queue)) => {
                    queue.head = number;
                    (queue.held_by, queue.rests_until) = (None, None);
                    // The caller before may have been admitted, so the answer to the next caller is the first one again.
                    queue.heard &= self.key.kind().is_exclusive();
                    None
                }
                _ => shard.queues.remove(&*self.key),
            };
            (next.map(|waiter| (waiter, number)), gone)
        };
        if let Some((waiter, number)) = next {
            let head = Head::new(&self.queues, &self.key, number);
            // If the waiter has just left, the head comes back as the error. Dropping it passes it on.
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
    /// Sends the ticket to the successor. Returns the ticket if the successor has left. A ticket that is dropped is passed on.
    pub(crate) fn give(self, ticket: Ticket) -> Option<Ticket> {
        if let Ticket::Head(head) = &ticket {
            // The successor still waits, and was counted in the queue, so no cap applies.
            let mut shard = head.queues.shard(&head.key);
            if head.queue_in(&mut shard).is_some() {
                shard.count_head(&head.key, true);
            }
        }
        self.ticket.send(ticket).err()
    }
}
