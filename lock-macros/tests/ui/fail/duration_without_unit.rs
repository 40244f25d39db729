use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "2")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
