use lock_runtime::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, map_err = drop)]
async fn settle() {}

fn main() {}
