//! A count of what is under way, for those who wait until nothing is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts what is under way, and tells when nothing is.
#[derive(Debug, Default)]
pub(crate) struct Count {
    count: AtomicUsize,
    zero: Notify,
}

impl Count {
    pub(crate) fn enter(self: &Arc<Count>) -> Counted {
        self.count.fetch_add(1, Ordering::SeqCst);
        Counted {
            count: self.clone(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Resolves when the count is zero.
    pub(crate) async fn zero(&self) {
        loop {
            let zero = self.zero.notified();
            if self.count() == 0 {
                return;
            }
            zero.await;
        }
    }
}

/// One that is counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    count: Arc<Count>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.count.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.count.zero.notify_waiters();
        }
    }
}
