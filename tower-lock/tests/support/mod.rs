//! The helpers that the layer's tests share.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Request, Response};
use lock_runtime::{LockManager, LockName};

pub type Served = Result<Response<String>, Infallible>;

/// Returns the lock of a path; `/` needs none.
pub fn by_path<B>(request: &Request<B>) -> Option<LockName> {
    let path = request.uri().path().strip_prefix('/')?;
    (!path.is_empty()).then(|| LockName::from("path:").with(path))
}

pub fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

/// Returns the name that [`by_path`] gives.
pub fn name(path: &str) -> LockName {
    LockName::from("path:").with(path)
}

pub fn retry_after<B>(response: &Response<B>) -> Option<u64> {
    let value = response.headers().get(RETRY_AFTER)?;
    Some(value.to_str().unwrap().parse().unwrap())
}

/// Waits for a condition, under a paused clock or a running one.
pub async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let checks = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), checks)
        .await
        .is_err()
    {
        panic!("not within 20 s: {what}");
    }
}

pub async fn waiters(locks: &LockManager, name: &LockName) -> usize {
    locks.inspect(name).await.unwrap().local_waiters
}

pub async fn released(locks: &LockManager, name: &LockName) {
    eventually("the lock is released", async || {
        !locks.inspect(name).await.unwrap().held
    })
    .await;
}

/// A value that is counted while it is alive.
#[derive(Debug)]
pub struct Alive(Arc<AtomicUsize>);

impl Alive {
    pub fn one_of(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, Ordering::SeqCst);
        Alive(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
