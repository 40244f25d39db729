use lock_runtime::{LockName, key};

struct Order;

fn name(order: Order) -> LockName {
    key!("order:{}", order)
}

fn main() {}
