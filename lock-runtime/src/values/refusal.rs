//! The reasons for which a manager refuses a request without asking its store.

use std::fmt;
use std::time::Duration;

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

/// The hold of this very manager that a caller waited for in vain: see
/// [`LockError::Busy`](crate::LockError::Busy).
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let first = locks.mutex("report").label("the report").acquire().await?;
/// let second = locks.mutex("report").wait(Duration::from_secs(2)).acquire().await;
/// let Err(LockError::Busy { held_here: Some(own), .. }) = second else {
///     panic!("this task itself has the lock");
/// };
/// assert_eq!(own.label(), "the report");
/// assert!(own.held_for() >= Duration::from_secs(2));
/// # first.release().await
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldHere(Box<(Duration, &'static str)>);

impl HeldHere {
    pub(crate) fn new(held_for: Duration, label: &'static str) -> HeldHere {
        HeldHere(Box::new((held_for, label)))
    }

    /// Returns the time for which it had been held when the caller gave up.
    pub fn held_for(&self) -> Duration {
        self.0.0
    }

    /// Returns its name in logs and metrics: its template or its label; `(unlabelled)` if it has none.
    pub fn label(&self) -> &'static str {
        self.0.1
    }
}
