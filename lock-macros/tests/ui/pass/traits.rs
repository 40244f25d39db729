//! Methods of traits and of their `impl`s, native and by `#[async_trait]`, also out of `macro_rules!`.
#![deny(warnings)]

use std::sync::Arc;

use async_trait::async_trait;
use lock_runtime::{LockError, distributed_lock};

trait Settle {
    const PREFIX: u64;
    type Item: Send;

    fn settle(&self, id: u64) -> impl Future<Output = Result<Self::Item, LockError>> + Send;

    fn row(&self) -> impl Future<Output = Result<&str, LockError>> + Send;

    #[allow(async_fn_in_trait)]
    async fn name(&mut self) -> Result<&mut String, LockError>;

    #[allow(async_fn_in_trait)]
    #[distributed_lock(key = "default:{id}")]
    async fn twice(&self, id: u64) -> Result<(Self::Item, Self::Item), LockError> {
        Ok((self.settle(id).await?, self.settle(id).await?))
    }

    #[distributed_lock(key = "default")]
    fn opaque(&self) -> impl Future<Output = Result<&str, LockError>> + Send
    where
        Self: Sync,
    {
        async move { self.row().await }
    }
}

struct Shop<T>(T, String);

impl<T: Send + Sync + Clone> Settle for Shop<T> {
    const PREFIX: u64 = 7;
    type Item = T;

    #[distributed_lock(key = "{self.1}:{id}")]
    async fn settle(&self, id: u64) -> Result<Self::Item, LockError> {
        Ok(self.0.clone())
    }

    #[distributed_lock(key = "row:{self.1}", label = if Self::PREFIX > 1 { "row" } else { "" })]
    async fn row(&self) -> Result<&str, LockError> {
        Ok(&self.1)
    }

    #[distributed_lock(key = "name")]
    async fn name(&mut self) -> Result<&mut String, LockError> {
        Ok(&mut self.1)
    }
}

#[async_trait]
trait Service: Send + Sync {
    async fn only_the_key(&self, id: u64, name: String) -> Result<(), LockError>;
    async fn changes(&self, mut id: u64) -> Result<u64, LockError>;
    async fn patterns(&self, (left, right): (u64, u64), _: u8) -> Result<u64, LockError>;
    async fn shared(self: Arc<Self>, text: &str) -> Result<usize, LockError>;
    async fn skips(&self, id: u64);
    async fn conditional(
        &self,
        #[cfg(all())] id: u64,
        #[cfg(any())] gone: Nowhere,
    ) -> Result<(), LockError>;

    #[distributed_lock(key = "default:{id}")]
    async fn provided(&self, id: u64) -> Result<(), LockError> {
        self.only_the_key(1, String::new()).await
    }
}

#[async_trait]
impl<T: Send + Sync> Service for Shop<T> {
    #[distributed_lock(key = "a:{id}/{name}")]
    async fn only_the_key(&self, id: u64, name: String) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "a:{id}")]
    async fn changes(&self, mut id: u64) -> Result<u64, LockError> {
        id += 1;
        Ok(id)
    }

    #[distributed_lock(key = "a:{self.1}")]
    async fn patterns(&self, (left, right): (u64, u64), _: u8) -> Result<u64, LockError> {
        Ok(left + right)
    }

    #[distributed_lock(key = "a:{self.1}/{text}")]
    async fn shared(self: Arc<Self>, text: &str) -> Result<usize, LockError> {
        Ok(self.1.len())
    }

    #[distributed_lock(key = "a:{id}", on_busy = skip)]
    async fn skips(&self, id: u64) {}

    #[distributed_lock(key = "a:{id}")]
    async fn conditional(
        &self,
        #[cfg(all())] id: u64,
        #[cfg(any())] gone: Nowhere,
    ) -> Result<(), LockError> {
        Ok(())
    }
}

macro_rules! annotated {
    ($key:literal, $self:ident, $(#[$attribute:meta])* fn $name:ident($argument:ident: $of:ty) -> $returns:ty $body:block) => {
        $(#[$attribute])*
        #[distributed_lock(key = $key)]
        pub async fn $name(&$self, $argument: $of) -> $returns $body
    };
}

macro_rules! boxed {
    ($name:ident, $returns:ty) => {
        #[distributed_lock(key = "a")]
        fn $name() -> $returns {
            Box::pin(async move { Ok(()) })
        }
    };
}

boxed!(
    boxed,
    std::pin::Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>
);

impl Shop<u64> {
    annotated!(
        "a:{self.0}/{text}",
        self,
        /// Documented.
        fn elided(text: &str) -> Result<&String, LockError> {
            Ok(&self.1)
        }
    );
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    let mut shop = Shop(1_u64, String::new());
    needs_send(shop.settle(1));
    needs_send(shop.row());
    needs_send(shop.name());
    drop(shop.twice(1));
    needs_send(shop.opaque());
    needs_send(shop.only_the_key(1, String::new()));
    needs_send(shop.changes(1));
    needs_send(shop.patterns((1, 2), 3));
    needs_send(shop.skips(1));
    needs_send(shop.conditional(1));
    needs_send(shop.provided(1));
    needs_send(shop.elided("a"));
    needs_send(boxed());
    needs_send(Arc::new(shop).shared("a"));
}
