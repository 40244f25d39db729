use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "1s", key = "b")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
