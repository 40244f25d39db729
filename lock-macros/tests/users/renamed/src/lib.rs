//! `lock-runtime` by another name: `key!` finds it by itself, the attribute is told.
#![deny(warnings, missing_docs, clippy::all, clippy::pedantic)]

use locks::{LockError, LockName, distributed_lock};

/// By the attribute's option; `key!` inside it needs none.
///
/// # Errors
/// If the lock is busy or lost.
#[distributed_lock(keys = ["order:{id}", locks::key!("order:{}", id + 1)], crate = locks)]
pub async fn settle(id: u64) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(id)
}

/// Alone.
#[must_use]
pub fn name_of(id: u64) -> LockName {
    locks::key!("order:{id}:{}", id + 1)
}

/// What a company's own crate of locks does.
pub mod company {
    pub use locks::*;
}

/// Through another module.
#[must_use]
pub fn name_of_the_company(id: u64) -> LockName {
    company::key!("order:{id}")
}

macro_rules! order {
    ($id:ident) => {
        locks::key!("order:{}", $id)
    };
}

/// Out of a macro.
#[must_use]
pub fn name_by_macro(id: u64) -> LockName {
    order!(id)
}
