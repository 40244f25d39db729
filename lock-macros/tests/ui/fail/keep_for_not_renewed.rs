use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", keep_for = "30s", auto_renew = false)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
