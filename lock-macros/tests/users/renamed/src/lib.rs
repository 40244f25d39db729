//! `lock-runtime` by another name: `key!` finds it by itself, and an option tells the attribute.
#![deny(warnings, missing_docs, clippy::all, clippy::pedantic)]

use locks::{LockError, LockName, distributed_lock};

/// Needs the attribute's option; the `key!` inside it needs none.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(keys = ["order:{id}", locks::key!("order:{}", id + 1)], crate = locks)]
pub async fn settle(id: u64) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(id)
}

/// Calls `key!` alone.
#[must_use]
pub fn name_of(id: u64) -> LockName {
    locks::key!("order:{id}:{}", id + 1)
}

/// A module that re-exports the crate, as a company's own crate of locks does.
pub mod company {
    pub use locks::*;
}

/// Calls `key!` through another module.
#[must_use]
pub fn name_of_the_company(id: u64) -> LockName {
    company::key!("order:{id}")
}

macro_rules! order {
    ($id:ident) => {
        locks::key!("order:{}", $id)
    };
}

/// Calls `key!` from a macro.
#[must_use]
pub fn name_by_macro(id: u64) -> LockName {
    order!(id)
}
