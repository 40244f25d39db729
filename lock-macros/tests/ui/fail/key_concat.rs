use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = concat!("order:", "{id}"))]
async fn settle(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = std::concat!("order:", "{id}"))]
async fn by_its_path(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
