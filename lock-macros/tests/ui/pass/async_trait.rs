//! `#[async_trait]` above an `impl` runs first and leaves boxed futures behind.
#![deny(warnings)]

use async_trait::async_trait;
use lock_runtime::{LockError, LockManager, distributed_lock};

#[async_trait]
trait Settle {
    async fn settle(&self, id: u64, name: &str) -> Result<u64, LockError>;
    async fn change(&mut self, id: u64) -> Result<u64, LockError>;
    async fn consume(self: Box<Self>) -> Result<String, LockError>;
    async fn count<T: Send + 'static>(items: Vec<T>) -> Result<usize, LockError>
    where
        Self: Sized;
}

struct Shop {
    locks: LockManager,
    tenant: String,
}

#[async_trait]
impl Settle for Shop {
    #[distributed_lock(key = "{self.tenant}:{id}/{name}", manager = self.locks, guard = lease)]
    async fn settle(&self, id: u64, name: &str) -> Result<u64, LockError> {
        if name.is_empty() {
            return Ok(0);
        }
        std::future::ready(()).await;
        Ok(id + lease.name().len() as u64)
    }

    #[distributed_lock(key = "{self.tenant}", manager = self.locks)]
    async fn change(&mut self, mut id: u64) -> Result<u64, LockError> {
        id += 1;
        self.tenant.push('!');
        Ok(id)
    }

    #[distributed_lock(key = "{self.tenant}")]
    async fn consume(self: Box<Self>) -> Result<String, LockError> {
        Ok(self.tenant)
    }

    #[distributed_lock(key = "count:{items.len()}")]
    async fn count<T: Send + 'static>(items: Vec<T>) -> Result<usize, LockError> {
        Ok(items.len())
    }
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    needs_send(Shop::count(vec![1]));
    let _ = async |mut shop: Box<Shop>| {
        needs_send(shop.settle(7, "a"));
        needs_send(shop.change(7));
        shop.consume().await
    };
}
