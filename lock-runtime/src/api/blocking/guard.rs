//! The guard that a thread gets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::runtime::Runtime;
use crate::api::lease::{Lease, Lost, MemberLock};
use crate::release::Failure;
use crate::values::{FencingToken, LockError, LostReason};

/// A held lock: the [`LockGuard`](crate::LockGuard) of threads.
///
/// The hold is renewed in the background until the guard ends. Dropping the guard releases, and waits for the answer for
/// the call timeout at most; an error is logged. A guard may be dropped on another thread. Inside an async runtime, and
/// while its thread ends, it is released in the background.
///
/// ```
/// # fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::blocking::LockManager::in_memory()?;
/// let guard = locks.mutex("order:17").acquire()?;
/// assert!(guard.is_held());
/// drop(guard); // or: guard.release()?
/// locks.mutex("order:17").try_acquire()?.expect("it is free").release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct LockGuard {
    /// The async guard. Only the release takes it.
    guard: Option<crate::LockGuard>,
    lease: Lease,
    runtime: Arc<Runtime>,
}

impl LockGuard {
    pub(super) fn new(runtime: Arc<Runtime>, guard: crate::LockGuard) -> LockGuard {
        LockGuard {
            lease: guard.lease(),
            guard: Some(guard),
            runtime,
        }
    }

    /// Returns the lock's name, without the namespace. For several locks that are held as one, it has all names.
    pub fn name(&self) -> &str {
        self.lease.name()
    }

    /// Does the same as [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lease.fencing_token()
    }

    /// Does the same as [`LockGuard::members`](crate::LockGuard::members).
    pub fn members(&self) -> impl Iterator<Item = MemberLock<'_>> {
        self.lease.members()
    }

    /// Does the same as [`LockGuard::is_held`](crate::LockGuard::is_held): no I/O.
    #[must_use = "nothing stops the code after it if the lock is lost: ask in a condition"]
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns the time that the hold lasts if no further renewal is confirmed. Zero once it is lost.
    #[must_use = "it only tells how long the hold lasts: `renew` extends it"]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Returns a view of the hold to pass around, to other threads, too. It does not keep the lock.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Returns the loss of the hold, as a signal: ask [`is_lost`](Lost::is_lost), or use
    /// [`wait_lost`](LockGuard::wait_lost).
    pub fn lost(&self) -> Lost {
        self.lease.lost()
    }

    /// Blocks the thread until the hold is lost, for `wait` at most. Returns `None` if it was not lost by then.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] inside an async runtime.
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<LostReason>, LockError> {
        let lost = self.lost();
        let waited = async { tokio::time::timeout(wait, lost.wait()).await.ok() };
        self.runtime.block_on(waited)
    }

    /// Does the same as [`LockGuard::renew`](crate::LockGuard::renew).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn renew(&self, lease: Duration) -> Result<(), LockError> {
        match &self.guard {
            Some(guard) => self.runtime.block_on(guard.renew(lease))?,
            None => Ok(()),
        }
    }

    /// Does the same as [`LockGuard::downgrade`](crate::LockGuard::downgrade).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime, and the guard is then left as
    /// it is.
    pub fn downgrade(&mut self) -> Result<(), LockError> {
        match &mut self.guard {
            Some(guard) => self.runtime.block_on(async { guard.downgrade().await })?,
            None => Ok(()),
        }
    }

    /// Runs `body` under this hold, on this thread: a request for the same lock inside it re-enters. It does not watch for
    /// loss.
    pub fn scope<T>(&self, body: impl FnOnce() -> T) -> T {
        self.lease.enter(body)
    }

    /// Gives the lock back, wakes the next waiter, and waits for the answer, for the call timeout at most.
    ///
    /// # Errors
    /// The same as [`LockGuard::release`](crate::LockGuard::release); [`LockError::InvalidConfig`] inside an async
    /// runtime: the lock is then released in the background.
    pub fn release(mut self) -> Result<(), LockError> {
        self.give_back(Failure::ToCaller)
    }

    /// Returns the loss as an error, if the hold is lost by now. It does no I/O.
    pub fn loss(&self) -> Option<LockError> {
        self.guard.as_ref()?.loss()
    }

    pub(super) fn give_back(&mut self, failure: Failure) -> Result<(), LockError> {
        match self.guard.take() {
            // If blocking is refused, the future is dropped unpolled, and the guard is released in the background.
            Some(guard) => self
                .runtime
                .block_on(async { guard.release_with(failure).await })?,
            None => Ok(()),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // A loss was reported where it was found. On a thread that must not be blocked, the async guard releases in the
        // background, and logs it if that fails.
        let _ = self.give_back(Failure::ToLog);
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.held().show("LockGuard", f)
    }
}
