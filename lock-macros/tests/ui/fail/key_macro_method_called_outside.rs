use lock_runtime::{LockName, key};

fn name(order: &str) -> LockName {
    key!("order:{order.len}"())
}

fn main() {}
