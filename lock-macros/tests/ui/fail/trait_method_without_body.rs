use lock_runtime::{LockError, distributed_lock};

trait Settle {
    #[distributed_lock(key = "a")]
    async fn settle(&self) -> Result<(), LockError>;
}

fn main() {}
