use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", lease = "0s")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
