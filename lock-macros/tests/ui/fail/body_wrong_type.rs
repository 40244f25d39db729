use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn settle() -> Result<u64, LockError> {
    let total = "seven";
    Ok(total)
}

fn main() {}
