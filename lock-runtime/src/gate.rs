//! The local queue of each key. One caller per key and process deals with the store; the others queue behind it,
//! first come first served, and cost no network.
//!
//! Whoever is at the head owns a [`Place`]. It travels: from a head to its hold, from a hold to the next waiter.
//! Dropping it anywhere passes it on, so a cancelled future can lose nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::error::{LockError, StoreError};
use crate::key::{Key, KeyMap};
use crate::kind::Kind;
use crate::options::Terms;
use crate::pace::Pace;
use crate::share::Unclaimed;

mod place;
mod ticket;

pub(crate) use self::place::{Heir, Place};
pub(crate) use self::ticket::{Ticket, Waiting};

/// The gates of one manager.
#[derive(Debug)]
pub(crate) struct Gates {
    state: Mutex<State>,
    max_per_key: usize,
    max_in_all: usize,
}

#[derive(Debug, Default)]
struct State {
    gates: KeyMap<Gate>,
    /// Callers per key that wait in the store's queue instead of one of these.
    in_line: KeyMap<usize>,
    /// In all queues, the store's included.
    waiting: usize,
    /// Never given twice: a ticket may outlive the gate that it was for.
    next_ticket: u64,
    closed: bool,
}

/// A key that somebody in this process deals with.
#[derive(Debug, Default)]
struct Gate {
    /// By ticket number, so the order is that of arrival.
    queue: BTreeMap<u64, Waiter>,
    pace: Pace,
    /// What the store last failed with while a head asked it; `None` after any answer.
    fault: Option<StoreError>,
    /// Whether anything at all was heard from the store since the gate opened, and who wants to know.
    heard: bool,
    awaited: Option<Arc<Notify>>,
    /// The label of the local hold, if a hold owns the place, and whether a long wait was warned of.
    held_by: Option<&'static str>,
    warned: bool,
}

impl Gate {
    fn heard_from_store(&mut self, fault: Option<StoreError>) {
        self.fault = fault;
        self.heard = true;
        if let Some(awaited) = self.awaited.take() {
            awaited.notify_waiters();
        }
    }
}

#[derive(Debug)]
struct Waiter {
    turn: oneshot::Sender<Turn>,
    terms: Terms,
}

/// What a waiter gets when its time comes.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The head of the queue: ask the store.
    Head(Place),
    /// A hold, handed over by the one before.
    Held(Unclaimed),
    /// The store admits readers: each asks for itself, without a place. Or the latch is open.
    Go,
}

pub(crate) enum Entry {
    /// Nobody was there.
    Head(Place),
    Queued(Ticket),
}

impl Gates {
    pub(crate) fn new(max_per_key: usize, max_in_all: usize) -> Arc<Gates> {
        Arc::new(Gates {
            state: Mutex::default(),
            max_per_key,
            max_in_all,
        })
    }

    // Nothing panics while the state is locked, so a poisoned one is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place at `key` if nobody in this process deals with it.
    pub(crate) fn try_enter(self: &Arc<Gates>, key: &Arc<Key>) -> Option<Place> {
        let mut state = self.state();
        if state.gates.contains_key(key) {
            return None;
        }
        state.gates.insert(key.clone(), Gate::default());
        Some(Place {
            gates: self.clone(),
            key: key.clone(),
        })
    }

    /// Takes the place at `key`, or a ticket for it.
    pub(crate) fn enter(
        self: &Arc<Gates>,
        key: &Arc<Key>,
        terms: Terms,
    ) -> Result<Entry, LockError> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.closed {
            return Err(closed(key));
        }
        let Some(gate) = state.gates.get_mut(key) else {
            state.gates.insert(key.clone(), Gate::default());
            return Ok(Entry::Head(Place {
                gates: self.clone(),
                key: key.clone(),
            }));
        };
        self.check_caps(key, gate.queue.len(), state.waiting)?;
        state.waiting += 1;
        let number = state.next_ticket;
        state.next_ticket += 1;
        let (turn, given) = oneshot::channel();
        gate.queue.insert(number, Waiter { turn, terms });
        Ok(Entry::Queued(Ticket {
            gates: self.clone(),
            key: key.clone(),
            number,
            given,
        }))
    }

    /// Counts a caller who waits in the store's queue, if the caps allow one more.
    pub(crate) fn join_line(self: &Arc<Gates>, key: &Arc<Key>) -> Result<Waiting, LockError> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.closed {
            return Err(closed(key));
        }
        let in_line = state.in_line.get(key).copied().unwrap_or(0);
        self.check_caps(key, in_line, state.waiting)?;
        state.waiting += 1;
        state.in_line.insert(key.clone(), in_line + 1);
        Ok(Waiting {
            gates: self.clone(),
            key: key.clone(),
        })
    }

    /// Whether nobody of this process waits for the key in the store's queue.
    pub(crate) fn line_is_empty(&self, key: &Key) -> bool {
        !self.state().in_line.contains_key(key)
    }

    fn check_caps(&self, key: &Key, for_key: usize, in_all: usize) -> Result<(), LockError> {
        let (limit, scope) = if for_key >= self.max_per_key {
            (self.max_per_key, "for this key")
        } else if in_all >= self.max_in_all {
            (self.max_in_all, "in all")
        } else {
            return Ok(());
        };
        Err(LockError::TooManyWaiters {
            name: key.name().to_owned(),
            limit,
            scope,
        })
    }

    /// Whether somebody in this process deals with the key.
    pub(crate) fn is_open(&self, key: &Key) -> bool {
        self.state().gates.contains_key(key)
    }

    /// How many local callers queue for the name of `key`, whatever the kind.
    pub(crate) fn waiters(&self, key: &Key) -> usize {
        let state = self.state();
        let queued = |kind| {
            let key = key.as_kind(kind);
            let here = state.gates.get(&key).map_or(0, |gate| gate.queue.len());
            here + state.in_line.get(&key).copied().unwrap_or(0)
        };
        Kind::ALL.into_iter().map(queued).sum()
    }

    /// Sends every waiter away and admits no more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let queues: Vec<_> = state
            .gates
            .values_mut()
            .map(|gate| std::mem::take(&mut gate.queue))
            .collect();
        state.waiting -= queues.iter().map(BTreeMap::len).sum::<usize>();
        drop(state);
        // Each waiter's channel closes: it answers `ShuttingDown`.
        drop(queues);
    }

    fn with<T>(&self, key: &Key, read: impl FnOnce(&mut Gate) -> T) -> Option<T> {
        self.state().gates.get_mut(key).map(read)
    }

    fn fault(&self, key: &Key) -> Option<StoreError> {
        self.with(key, |gate| gate.fault.clone()).flatten()
    }

    fn pop(state: &mut State, key: &Key) -> Option<Waiter> {
        let gate = state.gates.get_mut(key)?;
        let (_, waiter) = gate.queue.pop_first()?;
        state.waiting -= 1;
        Some(waiter)
    }
}

pub(crate) fn closed(key: &Key) -> LockError {
    LockError::ShuttingDown {
        name: key.name().to_owned(),
        why: "the manager is shutting down",
    }
}

#[cfg(test)]
mod tests;
