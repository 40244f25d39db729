use lock_runtime::{LockName, key};

fn name(id: &str) -> LockName {
    key!(id)
}

fn main() {}
