use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id(order)}")]
async fn settle(order: u64) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {}
