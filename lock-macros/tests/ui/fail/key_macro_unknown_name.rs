use lock_runtime::{LockName, key};

fn name() -> LockName {
    key!("order:{missing}")
}

fn main() {}
