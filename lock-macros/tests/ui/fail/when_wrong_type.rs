use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", when = id)]
async fn settle(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
