use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id.max()}")]
async fn settle(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
