//! Requests that block the calling thread.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::runtime::Runtime;
use crate::acquire::try_acquire::TryAcquire;
use crate::api::lease::Lease;
use crate::api::request::request_options;
use crate::protect::Outcome;
use crate::protect::driver::late_loss;
use crate::release::Failure;
use crate::values::LockError;

/// A request for one lock, or for permits of a semaphore.
///
/// See the example of [`Request`].
pub type LockRequest = Request<crate::LockRequest>;

/// A request for several locks as one.
///
/// See the example of [`Request`].
pub type MultiRequest = Request<crate::MultiRequest>;

/// A [`LockRequest`](crate::LockRequest) or a [`MultiRequest`](crate::MultiRequest) that blocks the calling thread. The
/// methods of [`LockManager`](super::LockManager) make it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct Request<R> {
    runtime: Arc<Runtime>,
    request: R,
}

/// The methods that both sorts of requests have in common. The trait cannot be named outside.
pub trait Ask: Sized {
    /// Sets how long to wait. With `None`, it waits for as long as it takes.
    fn waiting(self, wait: Option<Duration>) -> Self;
    /// Acquires within the wait.
    fn ask(self) -> impl Future<Output = Result<crate::LockGuard, LockError>>;
    /// Acquires the locks if they are free now.
    fn try_ask(self) -> impl Future<Output = Result<TryAcquire, LockError>>;
}

macro_rules! ask {
    ($($request:ty),*) => {$(
        impl Ask for $request {
            fn waiting(self, wait: Option<Duration>) -> Self {
                match wait {
                    Some(wait) => self.wait(wait),
                    None => self.wait_forever(),
                }
            }

            fn ask(self) -> impl Future<Output = Result<crate::LockGuard, LockError>> {
                self.acquire()
            }

            fn try_ask(self) -> impl Future<Output = Result<TryAcquire, LockError>> {
                self.try_acquire()
            }
        }
    )*};
}

ask!(crate::LockRequest, crate::MultiRequest);

impl<R> Request<R> {
    pub(super) fn new(runtime: Arc<Runtime>, request: R) -> Request<R> {
        Request { runtime, request }
    }

    pub(super) fn into_async(self) -> R {
        self.request
    }

    fn set(self, set: impl FnOnce(R) -> R) -> Request<R> {
        Request::new(self.runtime, set(self.request))
    }
}

macro_rules! pass_on {
    ($($option:ident($value:ident: $of:ty)),*) => {
        impl Request<crate::LockRequest> {
            $(
                #[doc = concat!(
                    "Does the same as [`LockRequest::", stringify!($option), "`](crate::LockRequest::",
                    stringify!($option), ")."
                )]
                pub fn $option(self, $value: $of) -> Self {
                    self.set(|request| request.$option($value))
                }
            )*
        }
    };
}

request_options!(pass_on);

impl<R: Ask> Request<R> {
    /// Waits up to `wait`, one year at most; zero tries once. Default: the manager's, 10 s; for several locks, the
    /// longest of theirs.
    pub fn wait(self, wait: Duration) -> Self {
        self.set(|request| request.waiting(Some(wait)))
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.set(|request| request.waiting(None))
    }

    /// Blocks the thread until the lock is acquired, or the wait is over.
    ///
    /// # Errors
    /// The same as [`LockRequest::acquire`](crate::LockRequest::acquire); [`LockError::InvalidConfig`] inside an async
    /// runtime.
    pub fn acquire(self) -> Result<LockGuard, LockError> {
        let guard = self.runtime.block_on(self.request.ask())??;
        Ok(LockGuard::new(self.runtime, guard))
    }

    /// Acquires the lock if it is free now. It blocks for one call to the store at most, like
    /// [`LockRequest::try_acquire`](crate::LockRequest::try_acquire).
    ///
    /// # Errors
    /// The same as [`acquire`](Request::acquire), but a lock that is held is [`TryAcquire::Busy`].
    pub fn try_acquire(self) -> Result<TryAcquire<LockGuard>, LockError> {
        let guard = self.runtime.block_on(self.request.try_ask())??;
        Ok(guard.map(|guard| LockGuard::new(self.runtime, guard)))
    }

    /// Acquires the lock, runs `body` under it on this thread, and releases. If the body panics, the lock is released, too.
    ///
    /// **A body that runs is not stopped when the lock is lost**: nothing can stop a thread. It goes on to its end, its
    /// value counts, and the loss is logged. Let long work ask [`Lease::is_held`] between its steps. A request that the
    /// body makes on its thread is nested in the hold, and re-enters.
    ///
    /// ```
    /// # fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::blocking::LockManager::in_memory()?;
    /// let pages = ["one", "two"];
    /// let written = locks.mutex("index").run(|lease| {
    ///     pages.iter().take_while(|_page| lease.is_held()).count() // writes a page
    /// })?;
    /// assert_eq!(written, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`acquire`](Request::acquire), and [`LockError::Lost`] if the lock was lost before the body began.
    pub fn run<T>(self, body: impl FnOnce(Lease) -> T) -> Result<T, LockError> {
        self.run_outcome(body)?.into_result()
    }

    /// Does the same as [`run`](Request::run), and returns both the value and the loss.
    ///
    /// # Errors
    /// The same as [`acquire`](Request::acquire). A loss is in the [`Outcome`]: `Completed` with it if the body ran,
    /// `Cancelled` if the lock was lost before the body began.
    pub fn run_outcome<T>(self, body: impl FnOnce(Lease) -> T) -> Result<Outcome<T>, LockError> {
        let mut guard = self.acquire()?;
        if let Some(loss) = guard.loss() {
            return Ok(Outcome::Cancelled { loss });
        }
        let value = guard.scope(|| body(guard.lease()));
        let loss = guard.give_back(Failure::ToLog).err().and_then(late_loss);
        Ok(Outcome::Completed { value, loss })
    }
}
