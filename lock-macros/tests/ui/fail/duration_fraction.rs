use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "1.5s")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
