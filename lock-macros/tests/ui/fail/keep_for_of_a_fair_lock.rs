use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", mode = fair, keep_for = "30s")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
