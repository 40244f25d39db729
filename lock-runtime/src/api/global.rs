//! The manager that the attribute uses when it names none.

use std::sync::{Arc, PoisonError, RwLock};

use crate::api::manager::LockManager;
use crate::observe::metrics::logged;
use crate::values::LockError;

static GLOBAL: RwLock<Option<LockManager>> = RwLock::new(None);

tokio::task_local! {
    static GLOBAL_HERE: LockManager;
}

impl LockManager {
    /// Makes this the manager that the attribute uses when it names none, in the whole process.
    ///
    /// Returns the manager that it replaces, if there was one. A program installs one, once, so the log has a warning
    /// with the [ids](LockManager::id) and the stores of both.
    ///
    /// Tests that run side by side have one process: see [`as_global`](LockManager::as_global).
    pub fn install_global(&self) -> Option<LockManager> {
        let mut global = GLOBAL.write().unwrap_or_else(PoisonError::into_inner);
        let before = global.replace(self.clone());
        drop(global);
        if let Some(replaced) = &before
            && !Arc::ptr_eq(replaced.core(), self.core())
        {
            let store = |locks: &LockManager| locks.core().backend.store().name();
            logged!(
                warn,
                id = self.id(),
                store = store(self),
                replaced = replaced.id(),
                replaced_store = store(replaced),
                "another lock manager is the global one from now on"
            );
        }
        before
    }

    /// Runs `future` with this as its global manager, no matter which one is installed. It is for tests, and for parts
    /// of a program with a store of their own. A task that `future` spawns has the installed manager again, unless it
    /// is wrapped as well.
    ///
    /// ```
    /// use lock_runtime::{LockError, LockManager, distributed_lock};
    ///
    /// #[distributed_lock(key = "report")]
    /// async fn report() -> Result<u32, LockError> {
    ///     Ok(7)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let locks = LockManager::in_memory();
    /// assert_eq!(locks.as_global(report()).await.unwrap(), 7);
    /// assert!(matches!(report().await, Err(LockError::NotInstalled)));
    /// # }
    /// ```
    pub fn as_global<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        GLOBAL_HERE.scope(self.clone(), future)
    }

    /// Returns the global manager: that of the nearest [`as_global`](LockManager::as_global) around the caller, or else
    /// the [installed](LockManager::install_global) one.
    ///
    /// # Errors
    /// [`LockError::NotInstalled`] if there is none.
    pub fn global() -> Result<LockManager, LockError> {
        if let Ok(here) = GLOBAL_HERE.try_with(LockManager::clone) {
            return Ok(here);
        }
        let global = GLOBAL.read().unwrap_or_else(PoisonError::into_inner);
        global.clone().ok_or(LockError::NotInstalled)
    }
}
