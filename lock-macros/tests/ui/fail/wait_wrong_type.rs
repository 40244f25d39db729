use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", wait = seconds)]
async fn settle(seconds: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
