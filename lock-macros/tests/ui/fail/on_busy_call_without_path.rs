use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = call)]
async fn settle() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", on_busy = call(|error| Err(error)))]
async fn by_a_closure() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
