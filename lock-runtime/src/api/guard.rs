//! The guard that a caller gets.

use std::fmt;
use std::time::Duration;

use tokio::task::coop;

use crate::api::lease::{Lease, Lost, MemberLock, members};
use crate::hold::{Handles, HoldHandle};
use crate::protect::driver::Driver;
use crate::protect::{ProtectFuture, ScopeFuture};
use crate::release::{Ending, Failure};
use crate::values::{FencingToken, LockError};

/// A held lock.
///
/// The hold is renewed in the background until the guard ends. [`release`](LockGuard::release) ends it and tells how
/// that went; dropping the guard releases in the background. Check [`is_held`](LockGuard::is_held), wait for
/// [`lost`](LockGuard::lost), or run the work in [`LockRequest::run`](crate::LockRequest::run), which does both.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("import").acquire().await?;
/// for step in 0..3 {
///     if !guard.is_held() {
///         break;
///     }
///     println!("step {step}, {:?} left", guard.remaining());
/// }
/// guard.release().await?; // tells whether the lock was still held
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released at once when the guard is dropped, and `let _ = …` drops it: bind it to a variable, as in `let guard = …`"]
pub struct LockGuard {
    pub(crate) handles: Handles,
}

impl LockGuard {
    pub(crate) fn new(mut handles: Handles) -> LockGuard {
        // A shutdown waits for its grace period only: the end is up to the caller.
        handles.count_as(|life| &life.in_hand);
        LockGuard { handles }
    }

    /// Returns the lock's name, without the namespace. For several locks that are held as one, it has all names.
    pub fn name(&self) -> &str {
        self.handles.held().name()
    }

    /// Returns the hold's fencing token. It is `None` for reads that are not nested in a write, for permits, for a
    /// write that became a read, on a quorum, with [`fencing(false)`](crate::LockManagerBuilder::fencing) (except for
    /// `fenced`), and for several locks that are held as one: see [`members`](LockGuard::members).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.handles.held().token()
    }

    /// Returns each lock with its own token: one, or those of [`LockManager::multi`](crate::LockManager::multi) in the
    /// order in which they were taken.
    pub fn members(&self) -> impl Iterator<Item = MemberLock<'_>> {
        members(self.handles.held())
    }

    /// Returns the number of permits of a semaphore that are held; 1 for a lock, and the sum for several that are held
    /// as one.
    pub fn permits(&self) -> u32 {
        let holds = self.handles.held().holds().iter();
        holds.map(|hold| hold.permits()).sum()
    }

    /// Returns true until the local deadline, or until a loss is known. Nobody whom this hold excludes was admitted
    /// before that, provided that the store kept the key and its clock did not step. It does no I/O.
    #[must_use = "nothing stops the code after it if the lock is lost: ask in a condition"]
    #[doc(alias("is_locked", "isHeldByCurrentThread"))]
    pub fn is_held(&self) -> bool {
        self.handles.held().is_held()
    }

    /// Returns the time that the hold lasts if no further renewal is confirmed. Zero once it is lost.
    #[must_use = "it only tells how long the hold lasts: `renew` extends it"]
    #[doc(alias("ttl", "remainTimeToLive"))]
    pub fn remaining(&self) -> Duration {
        self.handles.held().remaining()
    }

    /// Returns a view of the hold to pass around. It does not keep the lock.
    pub fn lease(&self) -> Lease {
        Lease::new(self.handles.call_chain())
    }

    /// Resolves when the hold is lost; never after a normal release.
    pub fn lost(&self) -> Lost {
        Lost::new(self.handles.held().clone())
    }

    /// Returns the loss as an error, if the hold is lost by now. It does no I/O.
    pub fn loss(&self) -> Option<LockError> {
        self.handles.held().lost_error()
    }

    /// Resolves when the hold is over: lost or, by all of its sharers, released.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.handles.held().clone().over()
    }

    /// Resolves when the manager begins to shut down: see [`Lease::closing`].
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.handles.held().clone().closing()
    }

    /// Extends the lease to `lease` from now, if that is longer than what is left. It is needed only with
    /// `auto_renew(false)`, or to get more slack than the lease gives.
    ///
    /// # Errors
    /// [`LockError::InvalidLease`], [`LockError::Lost`] if the hold is gone, [`LockError::Unavailable`] if the store
    /// did not answer: the hold is then as it was, and a retry can help; [`LockError::Denied`],
    /// [`LockError::ShuttingDown`]. With several locks it stops at the first that fails; those before it are extended.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the hold intact; the store may or may not have extended it.
    #[doc(alias("extend", "refresh", "expire"))]
    pub async fn renew(&self, lease: Duration) -> Result<(), LockError> {
        coop::consume_budget().await;
        let check = |handle: &HoldHandle| handle.core().options.lease(self.name(), lease, false);
        let leases: Result<Vec<_>, _> = self.handles.parts().map(check).collect();
        for (handle, ttl) in self.handles.parts().zip(leases?) {
            handle.renew(ttl).await?;
        }
        Ok(())
    }

    /// Makes a write a read of the same lock, without a moment in between in which another writer could be admitted, and
    /// lets other readers in. A write under the guard is refused from then on ([`LockError::Upgrade`]), and there is no
    /// fencing token any more. A guard that only reads is left as it is.
    ///
    /// If other guards of the same call chain still write under the hold, the token stays and others are kept out until
    /// the last of these has ended or has become a read.
    ///
    /// The guard reads from the call on, before the future is polled. The future waits for the store's answer for the
    /// call timeout at most; a downgrade that is not confirmed by then is repeated in the background.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the hold is lost; [`LockError::Unavailable`] if the store did not confirm in time, which
    /// keeps other readers out for longer and harms nobody; [`LockError::Denied`]. [`LockError::InvalidConfig`] if it is
    /// not a guard of one read/write lock: it is then left as it is.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the downgrade.
    pub fn downgrade(
        &mut self,
    ) -> impl Future<Output = Result<(), LockError>> + Send + 'static + use<> {
        self.handles.downgrade()
    }

    /// Gives the lock back, and wakes the next waiter. If other guards of the same call chain share the hold, the lock
    /// stays held until the last of them ends.
    ///
    /// Waits for the answer for the call timeout at most; a release that is not confirmed by then is repeated in the
    /// background until the lease is over. A lock that goes to a waiter of the same manager goes there without a
    /// request if the store was asked a moment ago (2 ms, or four round trips).
    ///
    /// # Errors
    /// [`LockError::Lost`] if the hold was lost before, as far as this process or the answer knows: somebody else may
    /// have been admitted while this guard lived.
    /// [`LockError::Unavailable`] if the store did not confirm in time, answered only when the lease was over, or refuses what
    /// it served before.
    /// [`LockError::Denied`] if it never took a release of this manager, [`LockError::ForeignKey`] and
    /// [`LockError::ShuttingDown`] if the lock cannot be given back: its lease ends it.
    /// [`LockError::InvalidConfig`] outside a tokio runtime: it is then released in the background.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    #[doc(alias = "unlock")]
    pub fn release(self) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
        self.release_with(Failure::ToCaller)
    }

    pub(crate) fn release_with(self, failure: Failure) -> Ending {
        self.handles.release(failure)
    }

    /// Runs `body` under this hold and then releases it, as [`run`](crate::LockRequest::run) does after it has
    /// acquired. If the hold is lost, the body is dropped at its current `.await`.
    ///
    /// The future is a named type without a box, so that a layer or another future can contain it. The body is first
    /// polled inside the hold's call chain, so its requests re-enter. The output has the value and the loss; a release
    /// that fails otherwise is logged.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body first and then releases in the background.
    pub fn protect<F: Future>(self, body: F) -> ProtectFuture<F> {
        ProtectFuture::new(Driver::new(self.handles), body)
    }

    /// Runs `future` under this hold: a request for the same lock inside it re-enters. Also passes the hold on to a
    /// spawned task, `tokio::spawn(guard.scope(work))`: see [`Lease::scope`]. It does not watch for loss.
    pub fn scope<F: Future>(&self, future: F) -> ScopeFuture<F> {
        ScopeFuture::new(self.handles.call_chain(), future)
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handles.held().show("LockGuard", f)
    }
}
