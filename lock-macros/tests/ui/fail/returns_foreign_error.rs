use lock_runtime::distributed_lock;

struct SettleError;

#[distributed_lock(key = "a")]
async fn settle() -> Result<(), SettleError> {
    Err(SettleError)
}

fn main() {}
