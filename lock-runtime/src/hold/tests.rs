//! What tests of holds share.

use std::sync::{Arc, Weak};

use super::{Core, Hold, Tenure};
use crate::api::manager::events_of;
use crate::backend::Granted;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::queue::Front;
use crate::renew::Watch;
use crate::values::clock::Moment;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::options::{HoldOptions, Options};

/// The parts of a manager of that store.
pub(crate) fn core(store: &MemoryStore) -> Arc<Core> {
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(store.clone(), events_of(&watch));
    Core::new(Arc::new(backend), Options::default(), watch, Arc::default())
}

/// What some store has granted then, without a token. Its caller has it.
pub(crate) fn granted(
    key: Arc<Key>,
    front: Option<Front>,
    holder: HolderId,
    options: &HoldOptions,
    sent_at: Moment,
) -> Hold {
    let granted = Granted::leased(None, sent_at);
    let hold = Tenure::begin(Weak::new(), key, front, holder, options, granted, None);
    if options.renewed {
        hold.add_renewer();
    }
    hold
}
