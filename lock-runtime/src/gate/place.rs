//! The head's turn at a key, and whom it is handed over to.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Gates, Turn};
use crate::error::StoreError;
use crate::key::Key;
use crate::options::Terms;
use crate::pace::Pace;

/// Who waits at some moment: the tickets below this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar(u64);

/// This process's turn at a key. Dropped, it goes to the next waiter; when there is none, the gate is gone.
pub(crate) struct Place {
    pub(super) gates: Arc<Gates>,
    pub(super) key: Arc<Key>,
}

impl Place {
    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// What decides when to hand over and when to stand back.
    pub(crate) fn pace<T>(&self, read: impl FnOnce(&mut Pace) -> T) -> Option<T> {
        self.gates.with(&self.key, |gate| read(&mut gate.pace))
    }

    /// Notes what the store said, for waiters whose time runs out behind this head.
    pub(crate) fn heard_from_store(&self, fault: Option<&StoreError>) {
        self.gates
            .with(&self.key, |gate| gate.heard_from_store(fault.cloned()));
    }

    /// What the store last failed with, if the head before got no answer from it.
    pub(crate) fn fault(&self) -> Option<StoreError> {
        self.gates.fault(&self.key)
    }

    /// Notes that a hold owns the place from now on.
    pub(crate) fn now_held_by(&self, label: &'static str) {
        self.gates.with(&self.key, |gate| {
            gate.held_by = Some(label);
            gate.warned = false;
            gate.heard_from_store(None);
        });
    }

    /// Marks who waits by now: before a question whose answer is for them, and for nobody who comes later.
    pub(crate) fn so_far(&self) -> SoFar {
        SoFar(self.gates.state().next_ticket)
    }

    /// Lets everybody go who waits: the store admits them together.
    pub(crate) fn admit_all(self) {
        self.admit_those(SoFar(u64::MAX));
    }

    /// Lets those go who waited at the mark. The turn goes to the next of the others.
    pub(crate) fn admit_those(self, mark: SoFar) {
        let queue = {
            let mut state = self.gates.state();
            let queue = state.gates.get_mut(&self.key).map(|gate| {
                let later = gate.queue.split_off(&mark.0);
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
        let gate = state.gates.get_mut(&self.key)?;
        if gate.queue.is_empty() {
            return None;
        }
        if !gate.pace.may_hand_over() {
            gate.pace.stand_back();
            return None;
        }
        loop {
            let waiter = Gates::pop(&mut state, &self.key)?;
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
            let next = Gates::pop(&mut state, &self.key);
            match (&next, state.gates.get_mut(&*self.key)) {
                (Some(_), Some(gate)) => {
                    gate.held_by = None;
                    // The one before may have been admitted: what the store says to the next one is news.
                    gate.heard &= self.key.kind().is_exclusive();
                }
                _ => drop(state.gates.remove(&*self.key)),
            }
            next
        };
        if let Some(waiter) = next {
            let place = Place {
                gates: self.gates.clone(),
                key: self.key.clone(),
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
        let _ = self.turn.send(turn);
    }
}
