//! The runtime that blocking calls and their background work run in.

use std::fmt;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::api::manager::LockManager;
use crate::values::{LockError, config};

/// A manager and its runtime. Everything that needs either shares it, guards included.
pub(super) struct Runtime {
    handle: Handle,
    locks: LockManager,
    /// The thread that drives the runtime. `None` if somebody else drives it.
    thread: Option<RuntimeThread>,
}

/// A thread that drives a runtime until it is stopped.
struct RuntimeThread {
    /// The channel for the manager, which the thread shuts down before it ends.
    stop: oneshot::Sender<LockManager>,
    thread: JoinHandle<()>,
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
            thread: Some(RuntimeThread { stop, thread }),
        })
    }

    /// Uses a runtime that somebody else drives.
    pub(super) fn of(handle: Handle, locks: LockManager) -> Runtime {
        Runtime {
            handle,
            locks,
            thread: None,
        }
    }

    pub(super) fn locks(&self) -> &LockManager {
        &self.locks
    }

    /// Waits for a future on the calling thread.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] inside an async runtime; the future is then dropped.
    pub(super) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        check_thread()?;
        Ok(self.handle.block_on(future))
    }
}

impl Drop for Runtime {
    /// Waits for the releases under way, or the end of a `main` could come before them. On a thread that must not be
    /// blocked, they go on by themselves.
    fn drop(&mut self) {
        let Some(RuntimeThread { stop, thread }) = self.thread.take() else {
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
