//! What the parts of one manager share.

use std::fmt;
use std::sync::Arc;

use crate::backend::{Backend, Claim, Stake};
use crate::clock::Moment;
use crate::error::LockError;
use crate::gate::Gates;
use crate::holder::{HolderId, HolderIds};
use crate::key::Key;
use crate::lifecycle::{Lifecycle, current_runtime};
use crate::options::{Options, Terms};
use crate::watchdog::{self, Watch};

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
            let (watch, backend, life) = (&self.watch, &self.backend, &self.life);
            let timeout = self.options.call_timeout;
            watchdog::start(watch.clone(), backend.clone(), life.clone(), timeout);
        }
    }

    /// The same, for a call that needs timers.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] outside a tokio runtime.
    pub(crate) fn start_here(&self) -> Result<(), LockError> {
        current_runtime()?;
        self.start();
        Ok(())
    }

    /// A claim with the terms of a request, for one call that is made now.
    pub(crate) fn claim<'a>(
        &self,
        key: &'a Key,
        holder: HolderId,
        terms: &Terms,
        now: Moment,
    ) -> Claim<'a> {
        Claim {
            stake: Stake {
                key,
                holder,
                permits: terms.permits,
            },
            term: terms.term,
            fenced: terms.fenced,
            waits: None,
            asked_at: now,
            timeout: terms.term.call_timeout(self.options.call_timeout),
        }
    }
}

/// Counts only: a manager may have a million holds, their names are user data, and whoever prints one holds no lock up.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("open", &self.life.is_open())
            .field("holds", &self.watch.count())
            .field("guards", &self.life.in_hand.count())
            .field("waiters", &self.gates.waiting())
            .finish_non_exhaustive()
    }
}

impl Drop for Core {
    /// The last manager and the last guard are gone. The backend closes when its last user drops it, after what it
    /// has to undo.
    fn drop(&mut self) {
        self.life.stop();
    }
}
