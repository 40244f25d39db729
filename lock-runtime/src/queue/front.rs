//! The right of one caller per process to deal with the store at a key, and the choice of the next one.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

use super::key_state::KeyState;
use super::{LocalQueues, Shard, Successor, Ticket};
use crate::backend::Fault;
use crate::hold::Tenure;
use crate::queue::slice::Slice;
use crate::release::place::Place;
use crate::values::{Key, LockError, Moment, clock};

/// The waiters of one moment: those whose numbers are not higher than this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar(u64);

/// This process's front at a key. A front that is dropped goes to the next waiter. Without a waiter, the key's state is deleted.
///
/// A front that was passed over changes nothing. Its owner may still send requests to the store, beside the owner of the new
/// front; the store decides between them.
pub(crate) struct Front {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) key: Arc<Key>,
    number: u64,
}

impl Front {
    pub(super) fn new(queues: &Arc<LocalQueues>, key: &Arc<Key>, number: u64) -> Front {
        Front {
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
        self.change(|state| read(state.slice()))
    }

    /// Notes that the front only lets other processes ask first, from now on.
    pub(crate) fn rests(&self, until: Moment) {
        self.change(|state| state.rests(until));
    }

    /// Notes that a caller follows another one at the front. Returns the place on the store's list that the other one left.
    pub(crate) fn takes_over(&self) -> Option<Box<Place>> {
        self.change(|state| {
            state.slice().begins_anew();
            state.place.take()
        })?
    }

    /// Leaves the place to the next caller at the front. Without a next caller, the place is dropped with the state.
    pub(crate) fn leave_place(&self, place: Box<Place>) {
        // The place that this one replaces is dropped after the lock is released.
        let mut place = Some(place);
        self.change(|state| std::mem::swap(&mut state.place, &mut place));
    }

    /// Counts the caller at the front as waiting, if the caps allow one more. A caller that came from the queue is counted
    /// already.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    pub(crate) fn count_as_waiting(&self) -> Result<(), LockError> {
        let mut locked = self.queues.lock(&self.key);
        match locked.keys.get_mut(&self.key) {
            Some(state) if state.is_front(self.number) => {
                state.front_waits(|waiting| self.queues.admit(&self.key, waiting))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of callers that wait behind the front.
    pub(crate) fn waiters(&self) -> u64 {
        let waiters = self.change(|state| state.waiters());
        u64::try_from(waiters.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Notes the outcome of a request, for waiters whose time runs out behind this front.
    pub(crate) fn heard_from_store(&self, fault: Option<&Fault>) {
        self.tell(|state| state.answered(fault.cloned()));
    }

    /// Returns the fault of the last request, if it got no answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queues.fault(&self.key)
    }

    /// Notes that a hold owns the front from now on.
    pub(crate) fn now_held_by(&self, label: &'static str) {
        self.tell(|state| state.held_by(label));
    }

    fn tell(&self, change: impl FnOnce(&mut KeyState) -> Option<Arc<Notify>>) {
        if let Some(awaited) = self.change(change).flatten() {
            awaited.notify_waiters();
        }
    }

    /// Marks the callers that wait now. The answer to the request that follows is valid for them, and not for later ones.
    pub(crate) fn so_far(&self) -> SoFar {
        SoFar(self.queues.lock(&self.key).last_number)
    }

    /// Lets all waiters ask for themselves: the store admits them together.
    pub(crate) fn let_all_go(self) {
        self.let_go(SoFar(u64::MAX));
    }

    /// Lets the waiters of the mark ask for themselves. The front goes to the first of the other waiters.
    pub(crate) fn let_go(self, mark: SoFar) {
        let waiters = self.change(|state| state.take_up_to(mark.0));
        for (_, waiter) in waiters.unwrap_or_default() {
            // A waiter that has just left needs no ticket.
            let _ = waiter.ticket.send(Ticket::Go);
        }
    }

    /// Takes out the waiter to which the lock is handed over: the next one, if there is one and the slice is not over.
    pub(crate) fn successor(&self) -> Option<Successor> {
        self.change(|state| {
            // Without a waiter, the clock is not read.
            let may_hand_over = state.waiters() > 0 && state.slice().may_hand_over(clock::now());
            may_hand_over.then(|| state.next_if(|_| true))?
        })?
    }

    fn change<T>(&self, change: impl FnOnce(&mut KeyState) -> T) -> Option<T> {
        self.queues.lock(&self.key).change_at(self, change)
    }
}

impl Shard {
    /// Keeps the tenure, idle, if no caller waits. Returns `false` also if the manager closes.
    pub(crate) fn keep(&mut self, front: &Front, tenure: &Arc<Tenure>, now: Moment) -> bool {
        !self.closed && self.change_at(front, |state| state.keep(tenure, now)) == Some(true)
    }

    /// Changes the state of the key, unless the front was passed over.
    pub(crate) fn change_at<T>(
        &mut self,
        front: &Front,
        change: impl FnOnce(&mut KeyState) -> T,
    ) -> Option<T> {
        self.change(&front.key, |state| {
            state.is_front(front.number).then(|| change(state))
        })?
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let is_exclusive = self.key.kind().is_exclusive();
        // What is deleted is dropped after the lock is released.
        let (next, number, _gone) = {
            let mut locked = self.queues.lock(&self.key);
            let number = locked.number();
            let passed_on = locked.change_at(self, |state| state.pass_on(number, is_exclusive));
            let Some((next, before)) = passed_on else {
                return;
            };
            let nobody = next.is_none();
            let deleted = nobody.then(|| locked.keys.remove(&*self.key));
            (next, number, (before, deleted))
        };
        if let Some(waiter) = next {
            let front = Front::new(&self.queues, &self.key, number);
            // If the waiter has just left, the front comes back as the error. Dropping it passes it on.
            let _ = waiter.ticket.send(Ticket::Front(front));
        }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Front").field(&self.key).finish()
    }
}

impl Successor {
    /// Sends the ticket to the successor. Returns the ticket if the successor has left. A ticket that is dropped is passed on.
    pub(crate) fn give(self, ticket: Ticket) -> Option<Ticket> {
        if let Ticket::Front(front) = &ticket {
            // The successor still waits, and was counted in the queue, so no cap applies.
            front.change(|state| state.front_waits(|_| Ok(())));
        }
        self.ticket.send(ticket).err()
    }
}
