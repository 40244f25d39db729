//! The reasons for which a manager refuses a request without asking its store.

use std::fmt;

/// The cap on waiters of a manager that was reached: see
/// [`LockError::TooManyWaiters`](crate::LockError::TooManyWaiters).
///
/// ```
/// use lock_runtime::{LockError, LockManager, WaiterCap};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// match locks.mutex("report").acquire().await {
///     Ok(guard) => guard.release().await?,
///     Err(LockError::TooManyWaiters { cap: WaiterCap::PerKey, limit, .. }) => {
///         println!("{limit} wait for this report already")
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaiterCap {
    /// [`max_waiters_per_key`](crate::LockManagerBuilder::max_waiters_per_key).
    PerKey,
    /// [`max_waiters`](crate::LockManagerBuilder::max_waiters), for all keys together.
    InAll,
}

impl fmt::Display for WaiterCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaiterCap::PerKey => "for this key",
            WaiterCap::InAll => "in all",
        })
    }
}

/// The reason why a manager serves nobody any more: see [`LockError::ShuttingDown`](crate::LockError::ShuttingDown).
///
/// ```
/// use lock_runtime::{LockError, LockManager, ShutdownCause};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// locks.shutdown().await;
/// let refused = locks.mutex("report").acquire().await;
/// assert!(matches!(
///     refused,
///     Err(LockError::ShuttingDown { why: ShutdownCause::Shutdown, .. })
/// ));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShutdownCause {
    /// Somebody called [`shutdown`](crate::LockManager::shutdown), which may be over.
    Shutdown,
    /// The tokio runtime that the manager belongs to has ended.
    RuntimeEnded,
}

impl fmt::Display for ShutdownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShutdownCause::Shutdown => "the manager is shutting down",
            ShutdownCause::RuntimeEnded => "the runtime that the manager belongs to is gone",
        })
    }
}
