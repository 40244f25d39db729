//! Functions that return a future instead of being `async`: their whole body is deferred.
#![deny(warnings)]

use std::fmt::Display;
use std::pin::Pin;

use lock_runtime::{LockError, LockManager, distributed_lock};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "a:{id}", guard = lease)]
fn opaque(id: u64) -> impl Future<Output = Result<u64, LockError>> + Send {
    let twice = id * 2;
    async move {
        if twice > 100 {
            return Ok(100);
        }
        Ok(twice + lease.name().len() as u64)
    }
}

#[distributed_lock(key = "a:{text}")]
fn borrows(text: &str) -> impl Future<Output = Result<usize, LockError>> + Send + '_ {
    async move { Ok(text.len()) }
}

#[distributed_lock(key = "a:{text}")]
fn boxed<'a, T: Display + Sync + ?Sized>(
    text: &'a T,
) -> Pin<Box<dyn Future<Output = Result<String, LockError>> + Send + 'a>> {
    Box::pin(async move { Ok(text.to_string()) })
}

#[distributed_lock(key = "a:{text}")]
fn boxed_after_some_work(text: &str) -> BoxFuture<'_, Result<usize, LockError>> {
    let length = text.len();
    if length == 0 {
        return Box::pin(std::future::ready(Ok(0)));
    }
    Box::pin(async move { Ok(length + text.len()) })
}

trait Settle {
    fn settle(&mut self, id: u64) -> BoxFuture<'_, Result<u64, LockError>>;
}

struct Shop {
    locks: LockManager,
    settled: u64,
}

impl Settle for Shop {
    #[distributed_lock(key = "a:{id}/{self.settled}", manager = self.locks)]
    fn settle(&mut self, id: u64) -> BoxFuture<'_, Result<u64, LockError>> {
        self.settled += id;
        Box::pin(async move { Ok(self.settled) })
    }
}

#[distributed_lock(key = "job", on_busy = skip)]
fn nothing() -> impl Future<Output = ()> {
    async {}
}

#[distributed_lock(key = "a")]
async fn returns_a_future() -> Result<impl Future<Output = u64>, LockError> {
    Ok(std::future::ready(7))
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    needs_send(opaque(7));
    needs_send(borrows("a"));
    needs_send(boxed("a"));
    needs_send(boxed_after_some_work("a"));
    needs_send(nothing());
    needs_send(returns_a_future());
    let _ = async |mut shop: Shop| shop.settle(7).await;
}
