use lock_runtime::{LockError, distributed_lock};

struct Order;

#[distributed_lock(key = "order:{order}")]
async fn settle(order: &Order) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {}
