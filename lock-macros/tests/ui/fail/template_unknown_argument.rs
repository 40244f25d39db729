use lock_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{ordr.id}")]
async fn settle(order: &Order, ledger: &str) -> Result<(), LockError> {
    let _ = (order.id, ledger);
    Ok(())
}

fn main() {}
