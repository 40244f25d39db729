use lock_runtime::distributed_lock;

#[distributed_lock(key = "a")]
fn settle() -> impl Future<Output = ()> {
    async {}
}

fn main() {}
