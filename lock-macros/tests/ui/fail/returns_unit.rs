use lock_runtime::distributed_lock;

#[distributed_lock(key = "a")]
async fn settle() -> () {}

fn main() {}
