use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", label = 7)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
