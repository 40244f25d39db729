use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:{text.repeat(1 + 1)}")]
async fn settle(text: &str) -> Result<(), LockError> {
    let _ = text;
    Ok(())
}

fn main() {}
