use lock_runtime::{LockError, distributed_lock, key};

#[distributed_lock(key = "order:{id /* of the order */}")]
async fn settle(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:{id // of the order}:{id.max(/** least */ 1)}")]
async fn settle_again(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Not a comment.
#[distributed_lock(key = "file:{path.trim_start_matches(\"//\")}//{path.replace('/', \"/*\")}")]
async fn open(path: &str) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let id = 1;
    drop((settle(1), settle_again(1), open("a")));
    drop(key!("order:{id/**/}"));
}
