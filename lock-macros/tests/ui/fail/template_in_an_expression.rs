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

#[distributed_lock(key = String::from("order:{id}"))]
async fn in_a_string(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(keys = ["account:{from}", "account:{to}"].into_iter())]
async fn in_an_iterator(from: u64, to: u64) -> Result<(), LockError> {
    let _ = (from, to);
    Ok(())
}

#[distributed_lock(keys = &["account:{id}"][..])]
async fn in_a_slice(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(keys = vec!["account:{id}"; 1])]
async fn in_a_repeated_list(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = custom.unwrap_or("order:{id}"))]
async fn in_a_default(id: u64, custom: Option<&str>) -> Result<(), LockError> {
    let _ = (id, custom);
    Ok(())
}

#[distributed_lock(keys = ids.iter().map(|id| "account:{id}").collect::<Vec<_>>())]
async fn in_a_closure(ids: &[u64]) -> Result<(), LockError> {
    let _ = ids;
    Ok(())
}

#[distributed_lock(keys = std::iter::once("account:{id}"))]
async fn alone_in_an_iterator(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
