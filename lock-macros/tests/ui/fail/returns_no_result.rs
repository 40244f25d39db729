use lock_runtime::distributed_lock;

#[distributed_lock(key = "a")]
async fn settle() -> u64 {
    7
}

fn main() {}
