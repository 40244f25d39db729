use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn settle(done: bool) -> Result<u64, LockError> {
    if done {
        return 7;
    }
    Ok(8)
}

fn main() {}
