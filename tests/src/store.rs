//! One lock store of either kind, and the macro that runs a behaviour on each.

use lock_runtime::{LockManager, LockManagerBuilder, MemoryStore};

use crate::eventually::eventually;
use crate::server::{Data, RedisServer};

/// A store that belongs to one test.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// A server process.
    Redis(Box<RedisServer>),
}

impl Store {
    /// A memory store of its own.
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// A Redis server of its own.
    pub fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start()))
    }

    /// A further manager on this store: a stranger to the others, like another process.
    pub async fn manager(&self) -> LockManager {
        self.connect(LockManager::builder()).await
    }

    /// A manager with settings.
    pub async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        match self {
            Self::Memory(store) => builder
                .memory_store(store)
                .in_memory()
                .expect("a manager on the memory store"),
            Self::Redis(server) => builder
                .connect(&server.url())
                .await
                .expect("a manager on the Redis server"),
        }
    }

    /// Forgets every key, as an operator's `FLUSHALL` does.
    pub fn flush(&self) {
        match self {
            Self::Memory(store) => store.clear(),
            Self::Redis(server) => server.flushall(),
        }
    }

    /// Restarts the server without its data; a memory store only forgets them.
    pub fn restart(&mut self) {
        match self {
            Self::Memory(store) => store.clear(),
            Self::Redis(server) => server.restart(Data::Lost),
        }
    }

    /// Waits until nothing but fence keys and control channels is left.
    pub async fn assert_clean(&self) {
        match self {
            Self::Memory(store) => {
                eventually("no lock is held any more", async || store.held() == 0).await;
            }
            Self::Redis(server) => server.assert_clean().await,
        }
    }

    /// After the managers are dropped: waits until nothing and nobody is left.
    pub async fn assert_deserted(&self) {
        match self {
            Self::Memory(_) => self.assert_clean().await,
            Self::Redis(server) => server.assert_deserted().await,
        }
    }
}

/// Runs each behaviour on each store, as a test of its own, and looks for leftovers after it.
///
/// On memory the clock is paused, so that a lease of an hour is over in no time; on Redis time is
/// real and two threads run the tasks.
#[macro_export]
macro_rules! suite {
    ($($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $($(#[$doc])* async fn $behaviour($store: $type) $body)+

        mod on_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $behaviour() {
                let mut store = $crate::Store::memory();
                super::$behaviour(&mut store).await;
                store.assert_deserted().await;
            })+
        }

        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let mut store = $crate::Store::redis();
                super::$behaviour(&mut store).await;
                store.assert_deserted().await;
            })+
        }
    };
}
