//! A count of what is under way, for callers that wait until nothing is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts what is under way, and wakes waiters when nothing is.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// With the bit [`WAITED_FOR`]: without it, there is no waiter to wake.
    count: AtomicUsize,
    zero: Notify,
}

/// A caller waits until nothing is under way, or has waited for that.
const WAITED_FOR: usize = 1 << (usize::BITS - 1);

impl Count {
    pub(crate) fn enter(self: &Arc<Count>) -> Counted {
        self.count.fetch_add(1, Ordering::SeqCst);
        Counted {
            count: self.clone(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst) & !WAITED_FOR
    }

    /// Resolves when the count is zero.
    pub(crate) async fn zero(&self) {
        loop {
            let zero = self.zero.notified();
            // If the last one ends after this, its end sees the bit. If it ended before, the count is zero.
            if self.count.fetch_or(WAITED_FOR, Ordering::SeqCst) & !WAITED_FOR == 0 {
                return;
            }
            zero.await;
        }
    }
}

/// A unit of the count, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    count: Arc<Count>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.count.count.fetch_sub(1, Ordering::AcqRel) == WAITED_FOR + 1 {
            self.count.zero.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiters_wake_when_the_last_one_ends_and_not_before() {
        let count = Arc::<Count>::default();
        // The second time, a caller has waited before.
        for _ in 0..2 {
            let counted = [count.enter(), count.enter()];
            let mut zero = pin!(count.zero());
            for one in counted {
                let waited = timeout(Duration::from_secs(1), &mut zero).await;
                assert!(waited.is_err(), "{} are under way", count.count());
                drop(one);
            }
            let told = timeout(Duration::from_secs(1), &mut zero).await;
            assert!(told.is_ok() && count.count() == 0);
        }
    }
}
