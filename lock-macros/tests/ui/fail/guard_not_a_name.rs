use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", guard = "lease")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
