use lock_runtime::{LockError, distributed_lock};

struct Order(String);

impl Order {
    fn into_id(self) -> String {
        self.0
    }
}

#[distributed_lock(key = "order:{order.into_id()}")]
async fn settle(order: Order) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {}
