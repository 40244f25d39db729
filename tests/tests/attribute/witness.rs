//! A value that records, when it is dropped, whether a lock is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_runtime::LockManager;

pub(crate) async fn is_held(locks: &LockManager, name: &str) -> bool {
    locks.inspect(name).await.unwrap().held
}

/// A value that records, when it is dropped, whether the lock is still held.
pub(crate) struct Witness {
    locks: LockManager,
    pub(crate) name: &'static str,
    held_at_drop: Arc<AtomicU32>,
}

pub(crate) const NOT_DROPPED: u32 = 0;
pub(crate) const HELD: u32 = 1;
pub(crate) const FREE: u32 = 2;

impl Witness {
    pub(crate) fn new(locks: &LockManager, name: &'static str) -> (Witness, Arc<AtomicU32>) {
        let held_at_drop = Arc::new(AtomicU32::new(NOT_DROPPED));
        (
            Witness {
                locks: locks.clone(),
                name,
                held_at_drop: held_at_drop.clone(),
            },
            held_at_drop,
        )
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // The memory store answers without waiting: one poll is enough.
        let request = std::pin::pin!(self.locks.inspect(self.name));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(info) = request.poll(&mut context) else {
            panic!("the memory store did not answer at once");
        };
        let seen = if info.unwrap().held { HELD } else { FREE };
        self.held_at_drop.store(seen, Ordering::SeqCst);
    }
}
