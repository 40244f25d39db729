//! The local queue of each key. One caller per key and process deals with the store; the others queue behind it,
//! first come first served, and cost no network.
//!
//! Whoever is at the head owns a [`Place`]. It travels: from a head to its hold, from a hold to the next waiter.
//! Dropping it anywhere passes it on, so a cancelled future can lose nothing. A future that is not polled any more
//! loses its place to those who wait behind it ([`Ticket::look_at_head`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::error::{LockError, StoreError};
use crate::key::{Key, KeyMap};
use crate::kind::Kind;
use crate::options::Terms;
use crate::pace::Pace;
use crate::share::Unclaimed;
use crate::sync::{Mutex, MutexGuard};

mod place;
mod ticket;

pub(crate) use self::place::{Heir, Place};
pub(crate) use self::ticket::{Ticket, Waiting};

/// The gates of one manager.
pub(crate) struct Gates {
    state: Mutex<State>,
    max_per_key: usize,
    max_in_all: usize,
}

#[derive(Default)]
struct State {
    gates: KeyMap<Gate>,
    /// Callers per key that wait in the store's queue instead of one of these.
    in_line: KeyMap<usize>,
    /// In all queues, the store's included.
    waiting: usize,
    /// Of tickets and places. Never given twice: they may outlive the gate that they were for.
    next_number: u64,
    closed: bool,
}

/// A key that somebody in this process deals with.
#[derive(Default)]
struct Gate {
    /// Which place is the head's. Another one was passed over, and means nothing any more.
    head: u64,
    /// The head is a caller who waits, and is counted among those.
    head_waits: bool,
    /// How often anything was heard of the head: a caller at the head hears from the store again and again.
    signs: u64,
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

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Takes out the next waiter.
    fn pop(&mut self, key: &Key) -> Option<Waiter> {
        let gate = self.gates.get_mut(key)?;
        let (_, waiter) = gate.queue.pop_first()?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Counts the head among those who wait, or no more.
    fn count_head(&mut self, key: &Key, waits: bool) {
        if let Some(gate) = self.gates.get_mut(key) {
            let waited = std::mem::replace(&mut gate.head_waits, waits);
            self.waiting += usize::from(waits);
            self.waiting -= usize::from(waited);
        }
    }
}

impl Gate {
    /// How many callers wait, the one at the head included.
    fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.head_waits)
    }

    fn heard_from_store(&mut self, fault: Option<StoreError>) {
        self.fault = fault;
        self.heard = true;
        self.signs += 1;
        if let Some(awaited) = self.awaited.take() {
            awaited.notify_waiters();
        }
    }
}

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
        Some(self.open(&mut state, key))
    }

    /// The first place at a key.
    fn open(self: &Arc<Gates>, state: &mut State, key: &Arc<Key>) -> Place {
        let head = state.number();
        let gate = Gate {
            head,
            ..Gate::default()
        };
        state.gates.insert(key.clone(), gate);
        Place {
            gates: self.clone(),
            key: key.clone(),
            number: head,
        }
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
        let number = state.number();
        let Some(gate) = state.gates.get_mut(key) else {
            return Ok(Entry::Head(self.open(state, key)));
        };
        self.check_caps(key, gate.waiting(), state.waiting)?;
        state.waiting += 1;
        let (turn, given) = oneshot::channel();
        gate.queue.insert(number, Waiter { turn, terms });
        Ok(Entry::Queued(Ticket {
            gates: self.clone(),
            key: key.clone(),
            number,
            given,
            last_seen: None,
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

    /// How many callers wait, for whatever key.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
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
            let here = state.gates.get(&key).map_or(0, Gate::waiting);
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
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, waiting) = {
            let state = self.state();
            (state.gates.len(), state.waiting)
        };
        f.debug_struct("Gates")
            .field("keys", &keys)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

pub(crate) fn closed(key: &Key) -> LockError {
    LockError::ShuttingDown {
        name: key.name().to_owned(),
        why: "the manager is shutting down",
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
