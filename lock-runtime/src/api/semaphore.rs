//! Semaphores whose permits are leased.

use std::sync::Arc;

use crate::acquire::counter::Counter;
use crate::api::request::LockRequest;
use crate::backend::{CounterKind, Counters};
use crate::hold::Core;
use crate::values::options::check_count;
use crate::values::{Kind, LockError, LockName};

/// A semaphore by its name: a number of permits for all processes together.
/// [`LockManager::semaphore`](crate::LockManager::semaphore) makes it. It is cheap to clone, and holds nothing itself.
///
/// Permits are *leased*: a guard's permits are renewed while it lives, come back when it is released or dropped, and
/// come back by themselves when a crashed holder's lease is over. This is the semaphore for new code; on Redis it is
/// Redisson's `RPermitExpirableSemaphore`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::in_memory();
/// let uploads = locks.semaphore("uploads").in_all(10);
///
/// let two = uploads.permits(2).acquire().await?;
/// assert_eq!((two.permits(), uploads.available().await?), (2, 8));
/// drop(two); // or: two.release().await?
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a semaphore by its name takes nothing: acquire some of its `permits(n)`"]
pub struct Semaphore {
    pub(super) core: Arc<Core>,
    name: LockName,
    in_all: Option<u64>,
}

impl Semaphore {
    pub(crate) fn new(core: Arc<Core>, name: LockName) -> Semaphore {
        Semaphore {
            core,
            name,
            in_all: None,
        }
    }

    /// Sets the number of permits in all, 1 to 10^12. A request for some of them stores that number if the store has
    /// none.
    ///
    /// The store keeps the number until all permits are back, so a semaphore for each user leaves nothing behind; if the last
    /// leases end by themselves, until a request comes with a number of its own. Until then the number that was set first
    /// counts: a process with another number does not change it, and gets no error.
    /// A number that is set by hand ([`try_set_permits`](Semaphore::try_set_permits),
    /// [`set_permits`](Semaphore::set_permits), [`add_permits`](Semaphore::add_permits)) counts for ever. Processes
    /// without a number, such as Redisson's clients, need one that was set by hand.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::in_memory();
    /// let exports = locks.semaphore("exports").in_all(4);
    /// let csv = exports.permits(1).run(async |_lease| "export.csv").await?;
    /// assert_eq!((csv, exports.available().await?), ("export.csv", 4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_all(mut self, permits: u64) -> Semaphore {
        self.in_all = Some(permits);
        self
    }

    pub(super) async fn counter(&self) -> Result<Counter<'_>, LockError> {
        Counter::new(&self.core, &self.name, CounterKind::Semaphore).await
    }

    /// Returns a request for `permits` permits, 1 to 1,000, all or none. They are waited for, leased, renewed and run
    /// under like a lock, with the same defaults.
    ///
    /// Callers of one process are served in the order in which they asked, so a request for many permits is not
    /// overtaken by later ones for few; between processes there is no order. A request for many may find too few free
    /// until its wait is over while other processes want few all the time, and callers of its own process wait behind it
    /// meanwhile. Requests never re-enter: two requests of one call chain take two sets, and wait for each other if there
    /// are too few. The guards carry no fencing token.
    ///
    /// Acquiring fails, at once or while it waits, with [`LockError::InvalidConfig`] if the semaphore has fewer permits
    /// in all than the request wants, and with [`LockError::NotSet`] if they were never set or the store lost them,
    /// unless [`in_all`](Semaphore::in_all) gives their number.
    pub fn permits(&self, permits: u32) -> LockRequest {
        let (core, name) = (self.core.clone(), self.name.clone());
        let mut request = LockRequest::new(core, name, Kind::Semaphore);
        (request.permits, request.in_all) = (permits, self.in_all);
        request
    }

    /// Sets the number of permits in all, if it is not set yet. Returns false if it was set, and leaves it as it was.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::InvalidConfig`] for more than 10^12,
    /// [`LockError::ForeignKey`], [`LockError::Unavailable`] (it may have been set or not: ask again),
    /// [`LockError::Denied`], [`LockError::ShuttingDown`].
    ///
    /// # Cancel safety
    /// Dropping the future may leave it set or not.
    pub async fn try_set_permits(&self, permits: u64) -> Result<bool, LockError> {
        let counter = self.counter().await?.if_open()?;
        check_count("the number of permits", permits)?;
        counter
            .once(|counters, counter, timeout| counters.set(counter, permits, timeout))
            .await
    }

    /// Sets the number of permits in all to `permits`, no matter if one was set before. Permits that are not leased
    /// become free, and holders keep theirs. If holders have more than `permits`, the number of free permits is below
    /// zero until enough of them come back. It is Redisson's `setPermits`.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// Dropping the future may leave it set or not.
    pub async fn set_permits(&self, permits: u64) -> Result<(), LockError> {
        let counter = self.counter().await?.if_open()?;
        check_count("the number of permits", permits)?;
        counter
            .once(|counters, counter, timeout| counters.limit(counter.key, permits, timeout))
            .await
    }

    /// Returns the number of free permits, including those of crashed holders whose leases have ended. It is below zero
    /// if more were taken away than were free. If none are set, it is the number that [`in_all`](Semaphore::in_all)
    /// gives, or else 0.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn available(&self) -> Result<i64, LockError> {
        let counter = self.counter().await?;
        let read = counter.once(Counters::read);
        let in_all = i64::try_from(self.in_all.unwrap_or(0)).unwrap_or(i64::MAX);
        Ok(read.await?.unwrap_or(in_all))
    }

    /// Adds permits, or takes some away with a number below zero: holders keep theirs, and fewer come back.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits), and [`LockError::NotSet`] if no permits were set.
    /// After [`LockError::Unavailable`] they may have been added or not; it is not tried twice. A shutdown refuses it
    /// only once the shutdown is done: bodies that it lets finish can still give back.
    ///
    /// # Cancel safety
    /// Dropping the future may leave it done or not done.
    pub async fn add_permits(&self, permits: i64) -> Result<(), LockError> {
        let counter = self.counter().await?;
        check_count("a change of permits", permits.unsigned_abs())?;
        counter
            .once(|counters, counter, timeout| counters.add(counter.key, permits, timeout))
            .await
    }

    /// Deletes the semaphore. Returns false if there was none. Holders notice at their next renewal, waiters at their
    /// next look; [`force_release`](crate::LockManager::force_release) before it notifies holders at once.
    ///
    /// # Errors
    /// The same as [`try_set_permits`](Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// Dropping the future may leave it done or not done.
    pub async fn delete(&self) -> Result<bool, LockError> {
        self.counter().await?.once(Counters::delete).await
    }
}
