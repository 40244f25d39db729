//! Futures that run under a hold: [`ScopeFuture`] passes the call chain on, [`ProtectFuture`] also ends the body when the hold is
//! lost and releases the hold after it, as `driver.rs` says.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::hold::{CallChain, Nest};
use crate::observe;
use crate::protect::driver::{BodyOrValue, Driver, polled_after_completion};
use crate::values::LockError;

pub(crate) mod driver;

pin_project! {
    /// A future that runs under a hold: see [`Lease::scope`](crate::Lease::scope).
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// let nested = locks.clone();
    /// // The task counts as nested in the hold: its request for the same lock re-enters.
    /// let task = tokio::spawn(guard.scope(async move { nested.mutex("report").run(async |_| 7).await }));
    /// assert_eq!(task.await.unwrap()?, 7);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct ScopeFuture<F> {
        nest: Nest,
        #[pin]
        future: F,
    }
}

impl<F> ScopeFuture<F> {
    pub(crate) fn new(call_chain: CallChain, future: F) -> ScopeFuture<F> {
        ScopeFuture {
            nest: Nest::new(call_chain),
            future,
        }
    }
}

impl<F: Future> Future for ScopeFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut future = this.future;
        let mut polled = Poll::Pending;
        this.nest.enter(&mut || polled = future.as_mut().poll(cx));
        polled
    }
}

/// The outcome of a protected body: its value, the loss of the lock, or both.
///
/// ```
/// use lock_runtime::{LockError, LockManager, Outcome};
///
/// async fn bill(locks: &LockManager) -> Result<u64, LockError> {
///     match locks.mutex("bill").run_outcome(async |_| 7).await? {
///         // The body ran to its end, and somebody else may have been admitted before that.
///         Outcome::Completed { loss: Some(loss), .. } => Err(loss),
///         // In time, or not at all.
///         other => other.into_result(),
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # assert_eq!(bill(&LockManager::in_memory()).await?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it tells whether the lock was lost, and whether the body ran to its end: match it, or call `into_result`"]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The body ran to its end.
    Completed {
        /// The value that it returned.
        value: T,
        /// [`LockError::Lost`], with `completed` set, if the release found that the hold had been lost: somebody
        /// else may have been admitted before the body's end.
        loss: Option<LockError>,
    },
    /// The body was dropped because the hold was lost.
    Cancelled {
        /// [`LockError::Lost`].
        loss: LockError,
    },
}

pin_project! {
    /// Runs a body under a hold, then releases it: see [`LockGuard::protect`](crate::LockGuard::protect).
    ///
    /// The loss is looked for before every poll of the body, so a process that was frozen does not go on when it
    /// wakes; the body is dropped in place before anything is returned.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// let outcome = guard.protect(async { 7 }).await; // and the lock is released
    /// assert_eq!(outcome.into_result()?, 7);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct ProtectFuture<F: Future> {
        // Before the driver: whatever drops this drops the body first, while the lock is still held.
        #[pin]
        body: BodyOrValue<F>,
        #[pin]
        driver: Driver,
    }
}

impl<F: Future> ProtectFuture<F> {
    pub(crate) fn new(driver: Driver, body: F) -> ProtectFuture<F> {
        ProtectFuture {
            body: BodyOrValue::Body { body },
            driver,
        }
    }
}

impl<F: Future> Future for ProtectFuture<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let outcome = ready!(this.driver.poll(cx, this.body.as_mut()));
        Poll::Ready(match outcome {
            Outcome::Cancelled { loss } => Outcome::Cancelled { loss },
            Outcome::Completed { loss, .. } => match this.body.take() {
                Some(value) => Outcome::Completed { value, loss },
                None => polled_after_completion(),
            },
        })
    }
}

impl<F: Future> fmt::Debug for ProtectFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectFuture")
            .field("handles", &self.driver.handles)
            .finish_non_exhaustive()
    }
}

impl<T> Outcome<T> {
    /// The value if the body completed, else the loss. A completed body whose hold was lost before its release is a
    /// value, with a warning in the log: what [`run`](crate::LockRequest::run) returns.
    ///
    /// # Errors
    /// The loss that the body was dropped for.
    pub fn into_result(self) -> Result<T, LockError> {
        match self {
            Outcome::Completed { value, loss } => {
                if let Some(loss) = loss {
                    observe::lost_after_completion(&loss);
                }
                Ok(value)
            }
            Outcome::Cancelled { loss } => Err(loss),
        }
    }
}
