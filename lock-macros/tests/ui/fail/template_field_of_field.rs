use lock_runtime::{LockError, distributed_lock};

struct Customer {
    id: u64,
}

struct Order {
    customer: Customer,
}

#[distributed_lock(key = "customer:{order.id}")]
async fn settle(order: &Order) -> Result<(), LockError> {
    let _ = order.customer.id;
    Ok(())
}

fn main() {}
