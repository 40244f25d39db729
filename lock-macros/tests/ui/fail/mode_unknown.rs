use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", mode = reed)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
