use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", mode = exclusive)]
async fn exclusive() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "b", mode = fair)]
async fn fair() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "c:{id}", mode = read)]
async fn read(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(keys = ["c:{from}", "c:{to}"], mode = write)]
async fn write(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

const PLACES: u64 = 3;

#[distributed_lock(key = "exports", mode = semaphore(PLACES))]
async fn export() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["exports:{from}", "exports:{to}"], mode = semaphore(2))]
async fn export_both(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

// An argument that only the option uses is not unused.
#[deny(unused_variables)]
#[distributed_lock(key = "exports:all", mode = semaphore(places.max(1)))]
async fn export_as_many(places: u64) -> Result<(), LockError> {
    Ok(())
}

pub(crate) fn main() {
    let _ = (exclusive(), fair(), read(1), write(1, 2));
    let _ = (export(), export_both(1, 2), export_as_many(3));
}
