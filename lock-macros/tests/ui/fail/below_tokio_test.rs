use lock_runtime::distributed_lock;

#[tokio::test]
#[distributed_lock(key = "a")]
async fn settle() {}

fn main() {}
