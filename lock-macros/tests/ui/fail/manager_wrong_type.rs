use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", manager = pool)]
async fn settle(pool: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
