use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{ids[0]}")]
async fn settle(ids: &[u64]) -> Result<(), LockError> {
    let _ = ids;
    Ok(())
}

fn main() {}
