//! The head's turn at a key, and whom it is handed over to.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Gate, Gates, State, Turn};
use crate::error::{LockError, StoreError};
use crate::key::Key;
use crate::options::Terms;
use crate::pace::Pace;

/// Who waits at some moment: the tickets up to this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar(u64);

/// This process's turn at a key. Dropped, it goes to the next waiter; when there is none, the gate is gone.
///
/// One that was passed over means nothing any more: its owner deals with the store beside the new head, and excludes
/// nobody by it.
pub(crate) struct Place {
    pub(super) gates: Arc<Gates>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
}

impl Place {
    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// What decides when to hand over and when to stand back.
    pub(crate) fn pace<T>(&self, read: impl FnOnce(&mut Pace) -> T) -> Option<T> {
        self.with(|gate| read(&mut gate.pace))
    }

    fn with<T>(&self, read: impl FnOnce(&mut Gate) -> T) -> Option<T> {
        self.gate_in(&mut self.gates.state()).map(read)
    }

    /// The gate, if this place is still its head.
    fn gate_in<'a>(&self, state: &'a mut State) -> Option<&'a mut Gate> {
        let gate = state.gates.get_mut(&self.key)?;
        (gate.head == self.number).then_some(gate)
    }

    /// Counts the caller who has the place among those who wait, if the caps allow one more. Whoever was counted in the
    /// queue still is.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    pub(crate) fn waits(&self) -> Result<(), LockError> {
        let mut state = self.gates.state();
        let Some(gate) = self.gate_in(&mut state).filter(|gate| !gate.head_waits) else {
            return Ok(());
        };
        let here = gate.waiting();
        self.gates.check_caps(&self.key, here, state.waiting)?;
        state.count_head(&self.key, true);
        Ok(())
    }

    /// Notes what the store said, for waiters whose time runs out behind this head.
    pub(crate) fn heard_from_store(&self, fault: Option<&StoreError>) {
        self.with(|gate| gate.heard_from_store(fault.cloned()));
    }

    /// What the store last failed with, if the head before got no answer from it.
    pub(crate) fn fault(&self) -> Option<StoreError> {
        self.gates.fault(&self.key)
    }

    /// Notes that a hold owns the place from now on.
    pub(crate) fn now_held_by(&self, label: &'static str) {
        let mut state = self.gates.state();
        if let Some(gate) = self.gate_in(&mut state) {
            gate.held_by = Some(label);
            gate.warned = false;
            gate.heard_from_store(None);
            state.count_head(&self.key, false);
        }
    }

    /// Notes that the hold has ended. Its release may be left to a caller who is not polled any more.
    pub(crate) fn held_no_more(&self) {
        self.with(|gate| gate.held_by = None);
    }

    /// Marks who waits by now: before a question whose answer is for them, and for nobody who comes later.
    pub(crate) fn so_far(&self) -> SoFar {
        SoFar(self.gates.state().next_number)
    }

    /// Lets everybody go who waits: the store admits them together.
    pub(crate) fn admit_all(self) {
        self.admit_those(SoFar(u64::MAX));
    }

    /// Lets those go who waited at the mark. The turn goes to the next of the others.
    pub(crate) fn admit_those(self, mark: SoFar) {
        let queue = {
            let mut state = self.gates.state();
            let queue = self.gate_in(&mut state).map(|gate| {
                let later = gate.queue.split_off(&mark.0.saturating_add(1));
                std::mem::replace(&mut gate.queue, later)
            });
            let queue = queue.unwrap_or_default();
            state.waiting -= queue.len();
            queue
        };
        for (_, waiter) in queue {
            // Who has just left needs nothing.
            let _ = waiter.turn.send(Turn::Go);
        }
    }

    /// The waiter to hand the hold over to: the next one, if there is one and the budget allows.
    pub(crate) fn heir(&self) -> Option<Heir> {
        let mut state = self.gates.state();
        let gate = self.gate_in(&mut state)?;
        if gate.queue.is_empty() {
            return None;
        }
        if !gate.pace.may_hand_over() {
            gate.pace.stand_back();
            return None;
        }
        loop {
            let waiter = state.pop(&self.key)?;
            if !waiter.turn.is_closed() {
                return Some(Heir {
                    turn: waiter.turn,
                    terms: waiter.terms,
                });
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut state = self.gates.state();
            if self.gate_in(&mut state).is_none() {
                return;
            }
            let next = state.pop(&self.key);
            // The next one goes on waiting, and was counted in the queue.
            state.count_head(&self.key, next.is_some());
            let number = state.number();
            match (&next, state.gates.get_mut(&*self.key)) {
                (Some(_), Some(gate)) => {
                    gate.head = number;
                    gate.held_by = None;
                    // The one before may have been admitted: what the store says to the next one is news.
                    gate.heard &= self.key.kind().is_exclusive();
                }
                _ => drop(state.gates.remove(&*self.key)),
            }
            next.map(|waiter| (waiter, number))
        };
        if let Some((waiter, number)) = next {
            let place = Place {
                gates: self.gates.clone(),
                key: self.key.clone(),
                number,
            };
            // A waiter that has just left gives its turn back as the error; dropping that passes it on.
            let _ = waiter.turn.send(Turn::Head(place));
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.key).finish()
    }
}

/// A waiter that a hold is being handed over to.
#[derive(Debug)]
pub(crate) struct Heir {
    turn: oneshot::Sender<Turn>,
    pub(crate) terms: Terms,
}

impl Heir {
    /// Gives the heir its turn. If it has left meanwhile, the turn is dropped, which passes it on.
    pub(crate) fn give(self, turn: Turn) {
        if let Turn::Head(place) = &turn {
            // It goes on waiting, and needs no leave: it was counted in the queue.
            let mut state = place.gates.state();
            if place.gate_in(&mut state).is_some() {
                state.count_head(&place.key, true);
            }
        }
        let _ = self.turn.send(turn);
    }
}
