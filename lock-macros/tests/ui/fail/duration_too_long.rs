use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = "99999999999999999999h")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
