use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = call(stale))]
async fn settle((id, _): (u64, u64)) -> Result<u64, LockError> {
    Ok(id)
}

fn stale(_: (u64, u64), _: LockError) -> Result<u64, LockError> {
    Ok(0)
}

fn main() {}
