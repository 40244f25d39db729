use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "a")]
async fn settle() -> Result<(), LockError> {
    let local = std::rc::Rc::new(7);
    std::future::ready(()).await;
    drop(local);
    Ok(())
}

fn needs_send(_: impl Send) {}

fn spawn() {
    needs_send(settle());
}

fn main() {}
