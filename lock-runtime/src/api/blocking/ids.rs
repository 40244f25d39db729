//! Ids for threads.

use std::sync::Arc;

use super::runtime::Runtime;
use crate::values::LockError;

/// A source of ids by its name, for threads: the [`Ids`](crate::Ids) whose calls block.
///
/// ```
/// # fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::blocking::LockManager::in_memory()?;
/// let orders = locks.ids("order");
/// assert!(orders.next()? < orders.next()?);
/// # Ok(())
/// # }
/// ```
///
/// Errors are those of the async methods, and [`LockError::InvalidConfig`] inside an async runtime.
#[derive(Clone, Debug)]
#[must_use = "a source of ids by its name gives none: call `next()`"]
pub struct Ids {
    runtime: Arc<Runtime>,
    ids: crate::Ids,
}

impl Ids {
    pub(super) fn new(runtime: Arc<Runtime>, ids: crate::Ids) -> Ids {
        Ids { runtime, ids }
    }

    /// Does the same as [`Ids::shuffled`](crate::Ids::shuffled).
    pub fn shuffled(self) -> Ids {
        Ids::new(self.runtime, self.ids.shuffled())
    }

    /// Does the same as [`Ids::next`](crate::Ids::next).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn next(&self) -> Result<i64, LockError> {
        self.runtime.block_on(self.ids.next())?
    }

    /// Does the same as [`Ids::take`](crate::Ids::take).
    ///
    /// # Errors
    /// Those of the async method; [`LockError::InvalidConfig`] inside an async runtime.
    pub fn take(&self, count: u32) -> Result<Vec<i64>, LockError> {
        self.runtime.block_on(self.ids.take(count))?
    }
}
