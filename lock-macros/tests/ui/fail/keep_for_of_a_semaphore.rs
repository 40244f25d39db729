use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", keep_for = "30s", mode = semaphore(3))]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
