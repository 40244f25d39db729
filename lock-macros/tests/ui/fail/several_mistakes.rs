use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{ordr}", wait = "2", lease = "10ms", gaurd = lease)]
async fn settle(order: u64) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {}
