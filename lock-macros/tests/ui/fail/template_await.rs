use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id.await}")]
async fn settle(id: std::future::Ready<u64>) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
