//! The smallest program: the one to paste from the guide, which is below.
//!
//! `cargo run --bin quickstart`

use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "order:{order}", wait = "2s", guard = lease)]
async fn settle(order: u64) -> Result<(), LockError> {
    println!("{} is held: {}", lease.name(), lease.is_held());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = LockManager::connect("memory://").await?; // or "redis://127.0.0.1/"
    locks.install_global();
    settle(17).await?;
    locks.shutdown().await; // gives the locks back: 12 s at most
    Ok(())
}
