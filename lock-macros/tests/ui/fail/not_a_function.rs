use lock_runtime::distributed_lock;

#[distributed_lock(key = "a")]
struct Settle;

fn main() {}
