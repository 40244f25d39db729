use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = call(stale))]
async fn settle(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn stale(_: LockError) -> Result<u64, LockError> {
    Ok(0)
}

fn main() {}
