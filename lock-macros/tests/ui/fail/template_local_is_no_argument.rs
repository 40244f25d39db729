use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{total}")]
async fn settle(order: u64) -> Result<(), LockError> {
    let total = order;
    let _ = total;
    Ok(())
}

fn main() {}
