use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", lease = "999ms")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
