use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = skipp)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
