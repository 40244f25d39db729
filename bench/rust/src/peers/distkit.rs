use std::sync::Arc;

use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;

use super::{LEASE, Lock, Peer};

pub(crate) struct Distkit(ConnectionManager);

impl Distkit {
    pub(crate) async fn connect(url: &str) -> Distkit {
        let client = redis::Client::open(url).expect("a URL");
        Distkit(client.get_connection_manager().await.expect("a connection"))
    }
}

impl Peer for Distkit {
    type Lock = Key;

    /// Makes a lock whose pause between two attempts is the default: 50 ms.
    fn lock(&self, key: &str) -> Key {
        let key = DistkitRedisKey::try_from(key.replace(':', "_")).expect("a key");
        Key(Mutex::new(
            LockOptions::builder(key, self.0.clone()).ttl(LEASE).build(),
        ))
    }
}

pub(crate) struct Key(Arc<Mutex>);

impl Lock for Key {
    type Guard = MutexGuard;

    async fn acquire(&mut self) -> MutexGuard {
        self.0.lock().await.expect("the lock")
    }

    async fn release(&mut self, guard: MutexGuard) {
        guard
            .release()
            .await
            .expect("the release of a lock that is held");
    }
}
