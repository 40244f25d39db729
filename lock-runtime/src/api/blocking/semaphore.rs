//! Semaphores for threads.

use std::sync::Arc;

use super::request::{LockRequest, Request};
use super::runtime::Runtime;
use crate::values::LockError;

/// A semaphore by its name, for threads: the [`Semaphore`](crate::Semaphore) whose calls block.
///
/// ```
/// # fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::blocking::LockManager::in_memory()?;
/// let uploads = locks.semaphore("uploads").in_all(10);
/// let two = uploads.permits(2).acquire()?;
/// assert_eq!(uploads.available()?, 8);
/// # drop(two);
/// # Ok(())
/// # }
/// ```
///
/// Errors are those of the async methods, and [`LockError::InvalidConfig`] inside an async runtime.
#[derive(Clone, Debug)]
pub struct Semaphore {
    runtime: Arc<Runtime>,
    semaphore: crate::Semaphore,
}

impl Semaphore {
    pub(super) fn new(runtime: Arc<Runtime>, semaphore: crate::Semaphore) -> Semaphore {
        Semaphore { runtime, semaphore }
    }

    /// Does the same as [`Semaphore::in_all`](crate::Semaphore::in_all).
    pub fn in_all(self, permits: u64) -> Semaphore {
        Semaphore::new(self.runtime, self.semaphore.in_all(permits))
    }

    /// Does the same as [`Semaphore::permits`](crate::Semaphore::permits).
    pub fn permits(&self, permits: u32) -> LockRequest {
        Request::new(self.runtime.clone(), self.semaphore.permits(permits))
    }

    /// Does the same as [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn try_set_permits(&self, permits: u64) -> Result<bool, LockError> {
        let set = self.semaphore.try_set_permits(permits);
        self.runtime.block_on(set)?
    }

    /// Does the same as [`Semaphore::set_permits`](crate::Semaphore::set_permits).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn set_permits(&self, permits: u64) -> Result<(), LockError> {
        self.runtime.block_on(self.semaphore.set_permits(permits))?
    }

    /// Does the same as [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn add_permits(&self, permits: i64) -> Result<(), LockError> {
        self.runtime.block_on(self.semaphore.add_permits(permits))?
    }

    /// Does the same as [`Semaphore::available`](crate::Semaphore::available).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn available(&self) -> Result<i64, LockError> {
        self.runtime.block_on(self.semaphore.available())?
    }

    /// Does the same as [`Semaphore::delete`](crate::Semaphore::delete).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn delete(&self) -> Result<bool, LockError> {
        self.runtime.block_on(self.semaphore.delete())?
    }
}
