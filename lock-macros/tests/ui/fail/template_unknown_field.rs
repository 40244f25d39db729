use lock_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{order.idd}")]
async fn settle(order: &Order) -> Result<(), LockError> {
    let _ = order.id;
    Ok(())
}

fn main() {}
