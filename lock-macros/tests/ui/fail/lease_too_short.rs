use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", lease = "49ms", auto_renew = false)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
