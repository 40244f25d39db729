use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn settle() -> Result<u64, LockError> {
    let _total = 7;
}

fn main() {}
