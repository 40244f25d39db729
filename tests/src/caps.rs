//! A check of how many callers a manager lets wait.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest};

use crate::eventually::eventually;

const LONG: Duration = Duration::from_secs(60);

/// Makes more requests at once than may wait, of a lock that another manager holds. Checks that exactly `most` of them
/// wait and that the others are refused.
///
/// # Panics
/// If more wait, or fewer.
pub async fn only_so_many_wait(
    locks: &LockManager,
    name: &str,
    most: usize,
    request: &LockRequest,
) {
    let refused = 6;
    let callers: Vec<_> = (0..most + refused)
        .map(|_| tokio::spawn(request.clone().wait(LONG).acquire()))
        .collect();
    eventually("the others are refused", async || {
        callers.iter().filter(|caller| caller.is_finished()).count() == refused
    })
    .await;
    let info = locks.inspect(name).await.expect("the store answers");
    assert_eq!(info.local_waiters, most);
    for caller in callers {
        if !caller.is_finished() {
            caller.abort();
            continue;
        }
        match caller.await.expect("no caller panics") {
            Err(LockError::TooManyWaiters { limit, .. }) => assert_eq!(limit, most),
            other => panic!("expected TooManyWaiters, got {other:?}"),
        }
    }
    eventually("nobody waits any more", async || {
        locks
            .inspect(name)
            .await
            .expect("the store answers")
            .local_waiters
            == 0
    })
    .await;
}
