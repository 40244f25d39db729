//! Tests of the name of a call's lock: templates, patterns and expressions.

use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU32, Ordering};

use lock_runtime::{LockError, LockManager, LockName, distributed_lock, key};

use crate::witness::is_held;

/// A value that says something else each time it is asked.
struct Counting(AtomicU32);

impl Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[distributed_lock(key = "count:{value}", manager = locks, guard = lease)]
async fn counted(locks: &LockManager, value: &Counting) -> Result<String, LockError> {
    Ok(lease.name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_key_is_computed_once() {
    let locks = LockManager::in_memory();
    let value = Counting(AtomicU32::new(0));
    assert_eq!(counted(&locks, &value).await.unwrap(), "count:0");
    assert_eq!(value.0.load(Ordering::SeqCst), 1);
    assert!(!is_held(&locks, "count:0").await);
}

struct Reference<T>(T);

#[distributed_lock(key = "{tenant}:{id}/{name.0}", manager = locks, guard = lease)]
async fn patterns(
    locks: &LockManager,
    Reference(id): Reference<u64>,
    (tenant, _): (&str, u8),
    name: &Reference<String>,
) -> Result<String, LockError> {
    Ok(lease.name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn values_are_escaped_and_may_come_out_of_patterns() {
    let locks = LockManager::in_memory();
    let name = Reference("a:b {c}%é".to_owned());
    let key = patterns(&locks, Reference(7), ("acme:eu", 0), &name)
        .await
        .unwrap();
    assert_eq!(key, "acme%3Aeu:7/a%3Ab%20%7Bc%7D%25%C3%A9");
}

#[tokio::test(start_paused = true)]
async fn an_empty_value_is_refused_before_the_body() {
    let locks = LockManager::in_memory();
    let name = Reference(String::new());
    let error = patterns(&locks, Reference(7), ("acme", 0), &name)
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::InvalidName { .. }), "{error}");
}

fn name_of(id: u64) -> LockName {
    key!("{{order}}:{}/{id}", id + 1)
}

#[distributed_lock(key = name_of(id), manager = locks, guard = lease)]
async fn expression(locks: &LockManager, id: u64) -> Result<String, LockError> {
    Ok(lease.name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_an_expression() {
    let locks = LockManager::in_memory();
    assert_eq!(expression(&locks, 1).await.unwrap(), "{order}:2/1");
}
