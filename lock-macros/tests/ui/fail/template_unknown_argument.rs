use lock_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{ordr.id}")]
async fn settle(order: &Order, ledger: &str) -> Result<(), LockError> {
    let _ = (order.id, ledger);
    Ok(())
}

#[distributed_lock(key = "order:{ordr}", when = *vip, guard = lease)]
async fn settle_for_some(order: u64, vip: &bool) -> Result<bool, LockError> {
    let _ = (order, vip);
    Ok(lease.is_some_and(|lease| lease.is_held()))
}

fn main() {}
