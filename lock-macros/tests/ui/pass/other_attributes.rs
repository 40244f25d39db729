//! Other attributes, above and below.
#![deny(warnings)]

use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "a:{id}")]
#[tracing::instrument(skip(name))]
async fn instrumented_below(id: u64, name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

#[tracing::instrument(skip(name))]
#[distributed_lock(key = "a:{id}")]
async fn instrumented_above(id: u64, name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

#[allow(clippy::needless_pass_by_value)]
#[distributed_lock(key = "a:{name}")]
#[inline]
/// Documented below.
#[deprecated(note = "to be seen in the order in which it was written")]
pub async fn kept(name: String) -> Result<usize, LockError> {
    Ok(name.len())
}

#[distributed_lock(key = "main", manager = locks())]
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), LockError> {
    drop((instrumented_below(1, "a"), instrumented_above(1, "a")));
    Ok(())
}

fn locks() -> LockManager {
    LockManager::in_memory()
}
