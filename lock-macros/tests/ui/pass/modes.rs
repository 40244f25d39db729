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

fn main() {
    let _ = (exclusive(), fair(), read(1), write(1, 2));
}
