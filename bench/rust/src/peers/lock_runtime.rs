use lock_runtime::{LockGuard, LockManager};

use super::{LEASE, Lock, Peer};

pub(crate) struct LockRuntime(LockManager);

impl LockRuntime {
    pub(crate) async fn connect(url: &str) -> LockRuntime {
        let locks = LockManager::builder().lease(LEASE).connect(url).await;
        LockRuntime(locks.expect("a connection"))
    }
}

impl Peer for LockRuntime {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key(self.0.clone(), key.to_owned())
    }
}

pub(crate) struct Key(LockManager, String);

impl Lock for Key {
    type Guard = LockGuard;

    async fn acquire(&mut self) -> LockGuard {
        self.0
            .mutex(&self.1)
            .wait_forever()
            .acquire()
            .await
            .expect("the lock")
    }

    async fn release(&mut self, guard: LockGuard) {
        guard
            .release()
            .await
            .expect("the release of a lock that is held");
    }
}
