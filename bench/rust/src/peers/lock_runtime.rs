use lock_runtime::{LockGuard, LockManager};

use super::{LEASE, Lock, Peer};

/// How a guard ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Awaited,
    Dropped,
}

pub(crate) struct LockRuntime(LockManager, End);

impl LockRuntime {
    pub(crate) async fn connect(url: &str, end: End) -> LockRuntime {
        let locks = LockManager::builder().lease(LEASE).connect(url).await;
        LockRuntime(locks.expect("a connection"), end)
    }
}

impl Peer for LockRuntime {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key(self.0.clone(), key.to_owned(), self.1)
    }

    async fn end(&self) {
        self.0.shutdown().await;
    }
}

pub(crate) struct Key(LockManager, String, End);

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
        match self.2 {
            End::Awaited => guard
                .release()
                .await
                .expect("the release of a lock that is held"),
            End::Dropped => drop(guard),
        }
    }
}
