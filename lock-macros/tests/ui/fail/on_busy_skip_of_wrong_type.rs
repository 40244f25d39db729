use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = skip)]
async fn settle() -> Result<u64, LockError> {
    Ok(7)
}

fn main() {}
