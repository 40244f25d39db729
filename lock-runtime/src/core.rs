//! What the parts of one manager share.

use std::sync::Arc;

use crate::backend::{Backend, Claim, Granted};
use crate::gate::{Gates, Place};
use crate::guard::Share;
use crate::hold::{Hold, Terms};
use crate::holder::{HolderId, HolderIds};
use crate::lifecycle::Lifecycle;
use crate::options::Options;
use crate::watchdog::{self, Watch};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: Options,
    pub(crate) ids: HolderIds,
    pub(crate) gates: Arc<Gates>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) life: Arc<Lifecycle>,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: Options, watch: Arc<Watch>) -> Arc<Core> {
        let gates = Gates::new(options.max_waiters_per_key, options.max_waiters);
        let ids = HolderIds::new();
        Arc::new(Core {
            backend,
            options,
            ids,
            gates,
            watch,
            life: Arc::default(),
        })
    }

    /// Starts the background work on the current runtime, once.
    pub(crate) fn start(&self) {
        if self.life.bind() {
            watchdog::start(self);
        }
    }

    /// A claim with the terms of a request, for one call.
    pub(crate) fn claim<'a>(
        &self,
        key: &'a crate::key::Key,
        holder: HolderId,
        terms: &Terms,
    ) -> Claim<'a> {
        Claim {
            key,
            holder,
            term: terms.term,
            fenced: terms.fenced,
            timeout: terms.term.call_timeout(self.options.call_timeout),
        }
    }

    /// Takes in a hold that the store has granted: from here on the watchdog knows it.
    pub(crate) fn admit(
        self: &Arc<Core>,
        place: Place,
        holder: HolderId,
        terms: Terms,
        granted: Granted,
    ) -> Share {
        place.now_held_by(terms.label);
        let hold = Hold::new(place, holder, terms, granted);
        self.watch.insert(&hold, granted.sent_at);
        Share::first(self.clone(), hold, terms.renewed)
    }
}

impl Drop for Core {
    /// The last manager and the last guard are gone.
    fn drop(&mut self) {
        self.life.stop();
        self.backend.close();
    }
}
