use lock_runtime::{LockName, key};

struct Order {
    id: u64,
}

fn name(order: &Order) -> LockName {
    let _ = order.id;
    key!("order:{order.idd}")
}

fn main() {}
