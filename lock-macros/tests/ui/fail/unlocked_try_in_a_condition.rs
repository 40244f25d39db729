use lock_runtime::{LockError, LockManager};

async fn settle(locks: &LockManager) -> Result<(), LockError> {
    if locks.mutex("a").try_acquire().await?.is_some() {
        println!("the guard would be gone here");
    }
    if locks.plain_semaphore("s").permits(1).try_acquire().await? {
        println!("nobody would give the permit back here");
    }
    Ok(())
}

fn main() {}
