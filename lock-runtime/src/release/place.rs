//! A place on the store's list of those that wait (`backend/redis/kinds/listed.rs`).
//!
//! It belongs to the process: a caller who gives up leaves it to the next one at the head.

use std::fmt;
use std::sync::Arc;

use super::undo;
use crate::backend::HoldRef;
use crate::hold::Core;
use crate::values::{Counted, HolderId, Key, Ttl, clock};

/// A holder that the store may have on its list, or for which it may have reserved the lock. Dropped, it is taken off the
/// list in the background, and what is reserved for it is given back. A place that cannot be given back costs the others
/// one reservation in vain.
pub(crate) struct Place {
    core: Arc<Core>,
    key: Arc<Key>,
    pub(crate) holder: HolderId,
    ttl: Ttl,
    /// Keeps a shutdown waiting. Gone once the lock was granted.
    on_list: Option<Counted>,
}

impl Place {
    pub(crate) fn new(core: &Arc<Core>, key: &Arc<Key>, holder: HolderId, ttl: Ttl) -> Place {
        Place {
            core: core.clone(),
            key: key.clone(),
            holder,
            ttl,
            on_list: Some(core.life.background.enter()),
        }
    }

    /// The store has taken the holder off the list, for it has the lock.
    pub(crate) fn has_lock(mut self) {
        self.on_list = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(on_list) = self.on_list.take() else {
            return;
        };
        let (core, key, holder) = (self.core.clone(), self.key.clone(), self.holder);
        let until = clock::now() + self.ttl.duration();
        self.core.life.spawn(async move {
            let _leaving = on_list;
            let mut hold_ref = HoldRef::one(&key, holder);
            hold_ref.listed = true;
            undo(&core, hold_ref, until).await;
        });
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.holder).finish()
    }
}
