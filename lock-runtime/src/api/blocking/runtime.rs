//! The runtime that blocking calls and their background work run in.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::select;
use tokio::sync::{oneshot, watch};

use crate::api::manager::LockManager;
use crate::values::{LockError, ShutdownCause, config};

/// A manager and its runtime. Everything that needs either shares it, guards included.
pub(super) struct Runtime {
    handle: Handle,
    pub(super) locks: LockManager,
    driver: DrivenBy,
}

/// What drives the runtime.
enum DrivenBy {
    /// A thread of this manager, and the channel for the manager, which the thread shuts down before it ends. `None` once it
    /// was told to stop.
    Own(Option<(oneshot::Sender<LockManager>, JoinHandle<()>)>),
    /// Somebody else, until the sender is gone: a task of the runtime has it.
    Other(watch::Receiver<()>),
}

impl Runtime {
    /// Starts a runtime on a thread of its own. Calls are polled by the threads that make them.
    pub(super) fn start(
        connecting: impl Future<Output = Result<LockManager, LockError>>,
    ) -> Result<Runtime, LockError> {
        check_thread()?;
        let failed = |error: std::io::Error| {
            let why = format!("no thread could be started: {error}");
            LockError::unavailable("(blocking)", why)
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<LockManager>();
        let drive = async move {
            // An error means that connecting has failed.
            if let Ok(locks) = stopped.await {
                locks.shutdown().await;
            }
        };
        let thread = thread::Builder::new()
            .name("lock-runtime".to_owned())
            .spawn(move || runtime.block_on(drive))
            .map_err(failed)?;
        let locks = handle.block_on(connecting)?;
        Ok(Runtime {
            handle,
            locks,
            driver: DrivenBy::Own(Some((stop, thread))),
        })
    }

    /// Uses a runtime that somebody else drives.
    pub(super) fn of(handle: Handle, locks: LockManager) -> Runtime {
        let (alive, ended) = watch::channel(());
        handle.spawn(async move { alive.closed().await });
        Runtime {
            handle,
            locks,
            driver: DrivenBy::Other(ended),
        }
    }

    /// Waits for a future on the calling thread.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] inside an async runtime, [`LockError::ShuttingDown`] once the runtime has ended; the
    /// future is then dropped.
    pub(super) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        check_thread()?;
        let DrivenBy::Other(ended) = &self.driver else {
            return Ok(self.handle.block_on(future));
        };
        let mut ending = ended.clone();
        // A runtime that ends drops its tasks before its timers. Polling a timer then panics, so the sender is looked at before
        // each poll. It may be dropped between the two.
        let waits = || {
            self.handle.block_on(async {
                select! {
                    biased;
                    _ = ending.changed() => None,
                    value = future => Some(value),
                }
            })
        };
        match panic::catch_unwind(AssertUnwindSafe(waits)) {
            Ok(Some(value)) => Ok(value),
            Err(panic) if ended.has_changed().is_ok() => panic::resume_unwind(panic),
            Ok(None) | Err(_) => Err(LockError::ShuttingDown {
                name: "(blocking)".to_owned(),
                why: ShutdownCause::RuntimeEnded,
            }),
        }
    }
}

impl Drop for Runtime {
    /// Waits for the releases under way, or the end of a `main` could come before them. On a thread that must not be
    /// blocked, they go on by themselves.
    fn drop(&mut self) {
        let DrivenBy::Own(own) = &mut self.driver else {
            return;
        };
        let Some((stop, thread)) = own.take() else {
            return;
        };
        let _ = stop.send(self.locks.clone());
        if check_thread().is_ok() {
            let _ = thread.join();
        }
    }
}

/// Refuses threads that must not be blocked: tokio would panic, or a task that is needed for the answer would wait for
/// this one.
pub(super) fn check_thread() -> Result<(), LockError> {
    match Handle::try_current() {
        Err(error) if error.is_missing_context() => Ok(()),
        Err(_) => Err(config("a blocking call was made while its thread ends")),
        Ok(_) => Err(config(
            "a blocking call was made inside an async runtime, whose tasks it would hold up: use the async \
             `lock_runtime::LockManager` there, or a thread of your own (`std::thread::spawn`)",
        )),
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}
