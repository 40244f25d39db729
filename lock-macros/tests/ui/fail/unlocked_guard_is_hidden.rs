#![deny(unused_variables)]

use lock_runtime::{LockError, LockManager};

async fn both_to_the_end(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.mutex("a").acquire().await?;
    let guard = locks.mutex("b").acquire().await?;
    guard.release().await
}

async fn a_future_and_an_error(locks: &LockManager) {
    let guard = locks.mutex("a").acquire();
    let other = locks.mutex("a").acquire().await;
}

fn main() {}
