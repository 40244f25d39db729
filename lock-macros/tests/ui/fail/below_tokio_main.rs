use lock_runtime::{LockError, distributed_lock};

#[tokio::main]
#[distributed_lock(key = "a")]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
