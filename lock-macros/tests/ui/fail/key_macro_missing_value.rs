use lock_runtime::{LockName, key};

fn name(id: u64) -> LockName {
    key!("order:{id}:{}")
}

fn main() {}
