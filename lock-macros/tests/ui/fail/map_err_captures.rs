use lock_runtime::distributed_lock;

#[distributed_lock(key = "a", map_err = |_| code)]
async fn settle(code: u16) -> u16 {
    200
}

fn main() {}
