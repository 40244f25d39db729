#![deny(unused_must_use)]

use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn settle(id: u64) -> Result<(), LockError> {
    Ok(())
}

async fn settle_all(locks: &LockManager) -> Result<(), LockError> {
    settle(17);
    locks.mutex("a");
    locks.mutex("a").acquire();
    locks.mutex("a").run(async |_| ());
    locks.mutex("a").run(async |_| std::future::ready(())).await?;
    locks.multi([locks.mutex("a")]);
    locks.semaphore("s");
    locks.latch("l").opened();
    let guard = locks.mutex("a").acquire().await?;
    guard.scope(async {});
    guard.protect(async {});
    Ok(())
}

fn main() {}
