//! A place on the store's waiting list (`backend/redis/kinds/listed.rs`).
//!
//! A place belongs to the process: a caller that gives up leaves it to the next caller at the front.

use std::fmt;
use std::sync::Arc;

use super::undo_later;
use crate::backend::{HoldRef, Listen};
use crate::hold::Core;
use crate::values::{Counted, HolderId, Key, Ttl, clock};

/// A holder that may be on the store's list, or for which the lock may be reserved. Dropping it takes the holder off the list
/// and gives back its reservation, in the background. If that fails, other processes wait for the end of one reservation.
pub(crate) struct Place {
    core: Arc<Core>,
    key: Arc<Key>,
    pub(crate) holder: HolderId,
    ttl: Ttl,
    /// The listener that listens since before a release put the holder on the list. The holder need not ask before it has
    /// heard a message.
    pub(crate) listener: Option<Box<dyn Listen>>,
    /// A shutdown waits for it. `None` once the holder is off the list.
    on_list: Option<Counted>,
}

impl Place {
    pub(crate) fn new(core: &Arc<Core>, key: &Arc<Key>, holder: HolderId, ttl: Ttl) -> Place {
        Place {
            core: core.clone(),
            key: key.clone(),
            holder,
            ttl,
            listener: None,
            on_list: Some(core.life.background.enter()),
        }
    }

    /// Notes that the store does not have the holder on the list: it has the lock, or nothing has put it on the list.
    pub(crate) fn off_list(mut self) {
        self.on_list = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It counts until the undoing does.
        let Some(_on_list) = self.on_list.take() else {
            return;
        };
        let hold_ref = HoldRef {
            listed: true,
            ..HoldRef::one(&self.key, self.holder)
        };
        let until = clock::now() + self.ttl.duration();
        undo_later(&self.core, &self.key, hold_ref, until);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.holder).finish()
    }
}
