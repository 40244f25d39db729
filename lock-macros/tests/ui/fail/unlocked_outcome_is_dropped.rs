#![deny(unused_must_use)]

use lock_runtime::{LockError, LockManager};

async fn settle(locks: &LockManager) -> Result<(), LockError> {
    locks.mutex("a").run_outcome(async |_| ()).await?;
    locks.multi([locks.mutex("a")]).run_outcome(async |_| ()).await?;
    let guard = locks.mutex("a").acquire().await?;
    guard.protect(async {}).await;
    Ok(())
}

fn main() {}
