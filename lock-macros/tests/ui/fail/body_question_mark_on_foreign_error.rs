use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn settle(text: &str) -> Result<u64, LockError> {
    let total = text.parse::<u64>()?;
    Ok(total)
}

fn main() {}
