use lock_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

impl Order {
    fn number(&self) -> u64 {
        self.id
    }
}

#[distributed_lock(key = "order:{order.numbr()}")]
async fn settle(order: &Order) -> Result<(), LockError> {
    let _ = order.number();
    Ok(())
}

fn main() {}
