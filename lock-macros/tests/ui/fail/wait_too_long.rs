use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "8761h")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
