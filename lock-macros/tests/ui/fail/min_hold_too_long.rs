use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", min_hold = "86400001ms")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
