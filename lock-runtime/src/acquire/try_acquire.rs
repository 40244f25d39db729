//! The outcome of a request that does not wait.

use std::time::Duration;

/// The outcome of `try_acquire`: the guard, or that somebody else has the lock.
///
/// It is no `Option`, and has no method that only tells whether the lock was acquired: a condition such as
/// `if locks.mutex("a").try_acquire().await?.is_some()` would drop the guard, and with it the lock, before the first
/// statement of its block.
///
/// ```
/// use lock_runtime::{LockError, LockManager, TryAcquire};
///
/// async fn report(locks: &LockManager) -> Result<bool, LockError> {
///     let TryAcquire::Acquired(guard) = locks.mutex("report").try_acquire().await? else {
///         return Ok(false); // another one is at it
///     };
///     println!("token {:?}", guard.fencing_token());
///     guard.release().await?;
///     Ok(true)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// # assert!(report(&locks).await?);
/// # let guard = locks.mutex("report").acquire().await?;
/// # assert!(!report(&locks).await?);
/// # guard.release().await
/// # }
/// ```
///
/// For an error instead, [`LockError::Busy`](crate::LockError::Busy), acquire with a wait of zero:
/// `locks.mutex("report").wait(Duration::ZERO).acquire().await?`.
#[derive(Debug)]
#[must_use = "it tells whether the lock was acquired, and its guard is dropped with it, also by `let _ = …`: match it, and keep the guard in a variable"]
pub enum TryAcquire<G = crate::LockGuard> {
    /// The lock was free, and the guard holds it. Plain permits have no guard: `TryAcquire::Acquired(())`.
    Acquired(G),
    /// Somebody else has the lock.
    #[non_exhaustive]
    Busy {
        /// The rest of the holder's lease when the store was asked. `None` if it was not asked, because this
        /// process itself has the lock or asks for it, and if nobody can tell. A holder that lives renews its lease, so
        /// this is when asking again is sensible, not when the lock will be free.
        retry_after: Option<Duration>,
    },
}

impl<G> TryAcquire<G> {
    /// The guard, for tests and for locks that nobody else can have.
    ///
    /// # Panics
    /// If somebody else has the lock, with `message`.
    #[track_caller]
    pub fn expect(self, message: &str) -> G {
        match self {
            TryAcquire::Acquired(guard) => guard,
            TryAcquire::Busy { .. } => panic!("{message}: the lock is busy"),
        }
    }

    /// Converts what was acquired.
    pub(crate) fn map<H>(self, had: impl FnOnce(G) -> H) -> TryAcquire<H> {
        match self {
            TryAcquire::Acquired(guard) => TryAcquire::Acquired(had(guard)),
            TryAcquire::Busy { retry_after } => TryAcquire::Busy { retry_after },
        }
    }
}
