use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", auto_renew = "no")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
