use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(keys = ids)]
async fn settle(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
