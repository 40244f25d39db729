use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = call(stale))]
async fn settle(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn stale(id: u64, _: LockError) -> u64 {
    id
}

fn main() {}
