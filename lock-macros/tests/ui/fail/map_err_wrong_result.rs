use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a", map_err = |error: LockError| error.to_string())]
async fn settle() -> u16 {
    200
}

fn main() {}
