#![deny(unused_must_use)]

use lock_runtime::{LockError, LockManager};

async fn settle(locks: &LockManager) -> Result<(), LockError> {
    locks.mutex("a").acquire().await?;
    locks.mutex("a").try_acquire().await?;
    locks.plain_semaphore("s").permits(1).try_acquire().await?;
    Ok(())
}

fn main() {}
