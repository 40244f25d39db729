//! Keys as expressions, and several of them.
#![deny(warnings)]

use lock_runtime::{LockError, LockName, distributed_lock, key};

struct Item {
    id: u64,
}

#[distributed_lock(keys = ["account:{from}", "account:{to}"], wait = "1s")]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

#[distributed_lock(keys = [key!("order:{order}"), LockName::from("audit"), "item:{first.id}"], guard = lease)]
async fn mixed(order: &str, first: &Item) -> Result<usize, LockError> {
    Ok(lease.members().count())
}

#[distributed_lock(keys = items.iter().map(|item| key!("item:{item.id}")), on_busy = skip)]
async fn all(items: &[Item]) -> Result<(), LockError> {
    Ok(())
}

/// Inside an argument's pattern, and named by a template inside an expression only.
#[distributed_lock(key = key!("item:{id}/{name}"))]
async fn inside_a_pattern(Item { id }: Item, (name, _): (&str, u8)) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = format!("item:{id:>8}"))]
async fn formatted(Item { id }: Item) -> Result<(), LockError> {
    Ok(())
}

pub(crate) fn main() {
    let _ = inside_a_pattern(Item { id: 1 }, ("a", 1));
    let _ = formatted(Item { id: 1 });
    let _ = transfer(1, 2);
    let _ = mixed("a", &Item { id: 1 });
    let _ = all(&[Item { id: 1 }]);
}
