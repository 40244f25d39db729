use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", keep_for = "86400001ms")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
