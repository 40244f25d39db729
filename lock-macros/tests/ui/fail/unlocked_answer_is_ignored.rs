#![deny(unused_must_use)]

use lock_runtime::{LockError, LockManager};

async fn settle(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.mutex("a").acquire().await?;
    guard.is_held();
    guard.remaining();
    guard.lost();
    guard.lease();
    let lease = guard.lease();
    lease.is_held();
    lease.remaining();
    lease.lost();
    lease.lost().is_lost();
    guard.release().await
}

fn main() {}
