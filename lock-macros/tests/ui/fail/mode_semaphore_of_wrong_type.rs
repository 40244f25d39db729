use lock_runtime::{LockError, distributed_lock};

const PLACES: usize = 3;

#[distributed_lock(key = "a", mode = semaphore(PLACES))]
async fn export() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
