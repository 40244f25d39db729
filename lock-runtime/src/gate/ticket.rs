//! Those who wait: in a local queue, or in the store's.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{Gates, Place, Turn};
use crate::error::StoreError;
use crate::key::Key;

/// A place in a queue. Dropped, it leaves the queue; a turn that was given already is passed on.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) gates: Arc<Gates>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
    pub(super) given: oneshot::Receiver<Turn>,
    /// The head, and what was heard of it, at the last look.
    pub(super) last_seen: Option<(u64, u64)>,
}

impl Ticket {
    /// Waits for the turn. `None`: the gates were closed. Cancel safe.
    pub(crate) async fn turn(&mut self) -> Option<Turn> {
        (&mut self.given).await.ok()
    }

    /// What the store last failed with, if the head got no answer from it.
    pub(crate) fn fault(&self) -> Option<StoreError> {
        self.gates.fault(&self.key)
    }

    /// If nothing was heard from the store about this key yet: what is raised when something is.
    pub(crate) fn first_news(&self) -> Option<OwnedNotified> {
        self.gates
            .with(&self.key, |gate| {
                // Made under the lock: the news cannot come before it.
                (!gate.heard).then(|| {
                    gate.awaited
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
        let place = {
            let mut guard = self.gates.state();
            let state = &mut *guard;
            let number = state.number();
            let Some(gate) = state.gates.get_mut(&self.key) else {
                return;
            };
            let seen = Some((gate.head, gate.signs));
            if std::mem::replace(&mut self.last_seen, seen) != seen
                || gate.held_by.is_some()
                || !gate.queue.contains_key(&self.number)
            {
                return;
            }
            gate.head = number;
            Place {
                gates: self.gates.clone(),
                key: self.key.clone(),
                number,
            }
        };
        // Unlocked: it goes to the first in the queue.
        drop(place);
    }

    /// The label of the hold that this waiter waits for, the first time somebody asks about that hold.
    pub(crate) fn blocked_by(&self) -> Option<&'static str> {
        self.gates
            .with(&self.key, |gate| {
                let first = !std::mem::replace(&mut gate.warned, true);
                gate.held_by.filter(|_| first)
            })
            .flatten()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.gates.state();
        let gate = state.gates.get_mut(&self.key);
        if gate.is_some_and(|gate| gate.queue.remove(&self.number).is_some()) {
            state.waiting -= 1;
        }
    }
}

/// One caller who waits in the store's queue, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) gates: Arc<Gates>,
    pub(super) key: Arc<Key>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.gates.state();
        state.waiting -= 1;
        if let Some(in_line) = state.in_line.get_mut(&self.key) {
            *in_line -= 1;
            if *in_line == 0 {
                state.in_line.remove(&self.key);
            }
        }
    }
}
