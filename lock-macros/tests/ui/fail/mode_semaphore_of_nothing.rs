use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", mode = semaphore(0))]
async fn zero() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "b", mode = semaphore)]
async fn no_number() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "c", mode = semaphore("3"))]
async fn text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "d", mode = semaphore(3, 4))]
async fn two_numbers() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
