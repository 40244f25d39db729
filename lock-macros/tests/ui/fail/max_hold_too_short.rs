use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", max_hold = "49ms")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
