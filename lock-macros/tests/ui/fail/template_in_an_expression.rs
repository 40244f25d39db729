use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = ("order:{id}"))]
async fn in_parentheses(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = "order:{id}".to_owned())]
async fn under_a_method(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = if vip { "vip".into() } else { "order:{id}".into() })]
async fn in_a_branch(id: u64, vip: bool) -> Result<(), LockError> {
    let _ = (id, vip);
    Ok(())
}

#[distributed_lock(key = match id { 0 => "none", _ => "order:{id}" })]
async fn in_an_arm(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(keys = vec!["account:{from}", "account:{to}"])]
async fn in_a_list(from: u64, to: u64) -> Result<(), LockError> {
    let _ = (from, to);
    Ok(())
}

fn main() {}
