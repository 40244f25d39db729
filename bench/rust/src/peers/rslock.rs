use rslock::{LockGuard, LockManager};

use super::{LEASE, Lock, Peer};

pub(crate) struct Rslock(LockManager);

impl Rslock {
    /// Connects. The pause between two attempts is the default: a random time below 200 ms, and none after every third
    /// attempt.
    pub(crate) fn connect(url: &str) -> Rslock {
        Rslock(LockManager::new(vec![url]))
    }
}

impl Peer for Rslock {
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
            .acquire(self.1.as_str(), LEASE)
            .await
            .expect("the lock")
    }

    async fn release(&mut self, guard: LockGuard) {
        guard.release().await;
    }
}
