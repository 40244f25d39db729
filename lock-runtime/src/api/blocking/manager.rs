//! The manager for threads, which makes all requests.

use std::sync::Arc;

use super::ids::Ids;
use super::request::{LockRequest, MultiRequest, Request};
use super::runtime::Runtime;
use super::semaphore::Semaphore;
use crate::api::info::LockInfo;
use crate::hold::current_runtime;
use crate::values::{IntoLockName, LockError};

/// A manager whose lock requests block the calling thread: the [`LockManager`](crate::LockManager) of threads.
///
/// It is cheap to clone; clones are the same manager, which any number of threads may use. It has a thread of its own,
/// named `lock-runtime`, that renews locks and keeps the connection. When the last clone and the last guard are gone,
/// the manager is [shut down](crate::LockManager::shutdown), and the thread ends; dropping the last one waits for that,
/// unless it is dropped inside an async runtime.
///
/// ```
/// use lock_runtime::blocking::LockManager;
///
/// # fn main() -> Result<(), lock_runtime::LockError> {
/// let locks = LockManager::in_memory()?;
/// let threads: Vec<_> = (0..4)
///     .map(|_| {
///         let locks = locks.clone();
///         std::thread::spawn(move || locks.mutex("counter").run(|_lease| { /* one at a time */ }))
///     })
///     .collect();
/// for thread in threads {
///     thread.join().expect("no panic")?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockManager {
    runtime: Arc<Runtime>,
}

impl LockManager {
    /// Connects with default options: see [`LockManagerBuilder::connect`](crate::LockManagerBuilder::connect).
    ///
    /// # Errors
    /// Those of that method. [`LockError::InvalidConfig`] inside an async runtime, [`LockError::Unavailable`] if no
    /// thread could be started.
    pub fn connect(url: &str) -> Result<LockManager, LockError> {
        LockManager::new(crate::LockManager::connect(url))
    }

    /// Creates a manager on a new memory store, with default options.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] inside an async runtime, [`LockError::Unavailable`] if no thread could be started.
    pub fn in_memory() -> Result<LockManager, LockError> {
        LockManager::new(async { Ok(crate::LockManager::in_memory()) })
    }

    /// Waits for an async manager that is being connected in any way: with options, to a quorum, to the server of a
    /// `redis` client. The future runs on the calling thread.
    ///
    /// ```
    /// # fn main() -> Result<(), lock_runtime::LockError> {
    /// use std::time::Duration;
    /// use lock_runtime::{LockManager, blocking};
    ///
    /// let options = LockManager::builder().lease(Duration::from_secs(10)).namespace("shop:");
    /// let locks = blocking::LockManager::new(options.connect("memory://"))?;
    /// # drop(locks);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the future. [`LockError::InvalidConfig`] inside an async runtime, [`LockError::Unavailable`] if no
    /// thread could be started.
    pub fn new(
        connecting: impl Future<Output = Result<crate::LockManager, LockError>>,
    ) -> Result<LockManager, LockError> {
        let runtime = Arc::new(Runtime::start(connecting)?);
        Ok(LockManager { runtime })
    }

    /// Makes a manager for the threads of a program that has an async manager, too. Call it inside the runtime of that
    /// manager, and give the result to threads outside: it has no thread of its own, and works while that runtime does.
    /// When the runtime ends, calls under way and later ones end with [`LockError::ShuttingDown`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// use lock_runtime::{LockManager, blocking};
    ///
    /// let locks = LockManager::in_memory();
    /// let for_threads = blocking::LockManager::from_async(locks.clone())?;
    /// let (done, is_done) = tokio::sync::oneshot::channel();
    /// std::thread::spawn(move || {
    ///     let _ = done.send(for_threads.mutex("report").run(|lease| lease.is_held()));
    /// });
    /// assert!(is_done.await.expect("no panic")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] outside an async runtime.
    pub fn from_async(locks: crate::LockManager) -> Result<LockManager, LockError> {
        let runtime = Arc::new(Runtime::of(current_runtime()?, locks));
        Ok(LockManager { runtime })
    }

    /// Returns the async manager that this one calls. Use it for methods that have no blocking form, with
    /// [`block_on`](LockManager::block_on), and for methods that need none, such as
    /// [`snapshot`](crate::LockManager::snapshot).
    pub fn as_async(&self) -> &crate::LockManager {
        &self.runtime.locks
    }

    /// Waits for a future of the async manager, on the calling thread.
    ///
    /// ```
    /// # fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::blocking::LockManager::in_memory()?;
    /// let latch = locks.as_async().latch("migrated");
    /// locks.block_on(latch.try_set_count(1))?;
    /// locks.block_on(latch.count_down())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the future; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn block_on<T>(
        &self,
        future: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        self.runtime.block_on(future)?
    }

    fn request(&self, request: crate::LockRequest) -> LockRequest {
        Request::new(self.runtime.clone(), request)
    }

    /// Does the same as [`LockManager::mutex`](crate::LockManager::mutex).
    pub fn mutex(&self, name: impl IntoLockName) -> LockRequest {
        self.request(self.as_async().mutex(name))
    }

    /// Does the same as [`LockManager::fenced`](crate::LockManager::fenced).
    pub fn fenced(&self, name: impl IntoLockName) -> LockRequest {
        self.request(self.as_async().fenced(name))
    }

    /// Does the same as [`LockManager::fair`](crate::LockManager::fair).
    pub fn fair(&self, name: impl IntoLockName) -> LockRequest {
        self.request(self.as_async().fair(name))
    }

    /// Does the same as [`LockManager::read`](crate::LockManager::read).
    pub fn read(&self, name: impl IntoLockName) -> LockRequest {
        self.request(self.as_async().read(name))
    }

    /// Does the same as [`LockManager::write`](crate::LockManager::write).
    pub fn write(&self, name: impl IntoLockName) -> LockRequest {
        self.request(self.as_async().write(name))
    }

    /// Does the same as [`LockManager::multi`](crate::LockManager::multi).
    pub fn multi(&self, members: impl IntoIterator<Item = LockRequest>) -> MultiRequest {
        let members = members.into_iter().map(Request::into_async);
        Request::new(self.runtime.clone(), self.as_async().multi(members))
    }

    /// Does the same as [`LockManager::semaphore`](crate::LockManager::semaphore).
    pub fn semaphore(&self, name: impl IntoLockName) -> Semaphore {
        Semaphore::new(self.runtime.clone(), self.as_async().semaphore(name))
    }

    /// Does the same as [`LockManager::ids`](crate::LockManager::ids).
    pub fn ids(&self, name: impl IntoLockName) -> Ids {
        Ids::new(self.runtime.clone(), self.as_async().ids(name))
    }

    /// Does the same as [`LockManager::inspect`](crate::LockManager::inspect).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn inspect(&self, name: impl IntoLockName) -> Result<LockInfo, LockError> {
        self.block_on(self.as_async().inspect(name))
    }

    /// Does the same as [`LockManager::force_release`](crate::LockManager::force_release).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn force_release(&self, name: impl IntoLockName) -> Result<bool, LockError> {
        self.block_on(self.as_async().force_release(name))
    }

    /// Does the same as [`LockManager::shutdown`](crate::LockManager::shutdown), for a manager that is never dropped,
    /// such as one in a `static`. It waits for a closure that runs under a lock as it does for a guard by hand.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] inside an async runtime.
    pub fn shutdown(&self) -> Result<(), LockError> {
        self.runtime.block_on(self.as_async().shutdown())
    }
}
