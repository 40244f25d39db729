use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", guard = id)]
async fn settle(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
