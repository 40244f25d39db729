//! Those who wait: in a local queue, or in the store's.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{Gates, Turn};
use crate::error::StoreError;
use crate::key::Key;

/// A place in a queue. Dropped, it leaves the queue; a turn that was given already is passed on.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) gates: Arc<Gates>,
    pub(super) key: Arc<Key>,
    pub(super) number: u64,
    pub(super) given: oneshot::Receiver<Turn>,
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
