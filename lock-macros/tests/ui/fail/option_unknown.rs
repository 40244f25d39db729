use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", leese = "30s")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
