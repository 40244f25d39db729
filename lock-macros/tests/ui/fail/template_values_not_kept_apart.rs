use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{tenant}-{id}")]
async fn settle(tenant: &str, id: u64) -> Result<(), LockError> {
    let _ = (tenant, id);
    Ok(())
}

fn main() {}
