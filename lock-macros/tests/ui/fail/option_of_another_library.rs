use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(name = "order:{id}", ttl = "30s", timeout = "2s")]
async fn settle(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(lockName = "cancel", leaseTime = 30, waitTime = 2, tryLock = true, retry = 3)]
async fn cancel() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report", lockAtMostFor = "1m", lockAtLeastFor = "5s", skip)]
async fn report() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
