use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async extern "C" fn settle(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = settle(1);
}
