//! Ancestors that are gone: given back, lost, or left by their guard while another one shares the hold.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LostReason, TryAcquire};

type Acquired = Result<LockGuard, LockError>;

async fn is_free(locks: &LockManager) -> bool {
    matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Acquired(_)
    )
}

/// A request that only a re-entry can grant while somebody holds the lock.
async fn again(locks: &LockManager) -> Acquired {
    locks
        .mutex("a")
        .wait(Duration::from_secs(5))
        .acquire()
        .await
}

/// A request of a stranger, who is soon told so.
async fn soon(locks: &LockManager) -> Acquired {
    locks
        .mutex("a")
        .wait(Duration::from_millis(50))
        .acquire()
        .await
}

#[tokio::test]
async fn hand_over_hand_locking_goes_on_for_ever() {
    const LINKS: u32 = 40_000;
    let locks = LockManager::in_memory();
    let mut guard = locks.mutex("0").acquire().await.unwrap();
    for link in 1..=LINKS {
        let next = locks.mutex((link % 1_000).to_string());
        let next = guard.scope(async { next.acquire().await }).await.unwrap();
        guard.release().await.unwrap();
        guard = next;
    }
    assert!(guard.is_held());
    // On a small stack: nothing is left to be dropped one inside the other.
    let dropped = std::thread::Builder::new().stack_size(128 << 10);
    dropped.spawn(|| drop(guard)).unwrap().join().unwrap();
}

#[tokio::test]
async fn a_lost_hold_that_no_guard_shares_any_more_is_no_ancestor() {
    let locks = LockManager::in_memory();
    let outer = locks.mutex("a").acquire().await.unwrap();
    let lease = outer.lease();
    let inner = outer.scope(again(&locks)).await.unwrap();
    let beside = outer
        .scope(async { locks.mutex("b").acquire().await })
        .await
        .unwrap();
    assert!(locks.force_release("a").await.unwrap());
    assert_eq!(outer.lost().wait().await, LostReason::ForceReleased);

    let under = async |guard: &LockGuard| guard.scope(soon(&locks)).await;
    let is_lost = |acquired: Acquired| matches!(acquired, Err(LockError::Lost { .. }));
    assert!(is_lost(under(&outer).await) && is_lost(under(&beside).await));
    drop(outer);
    // Another guard of the lost hold lives.
    assert!(is_lost(under(&inner).await) && is_lost(under(&beside).await));
    assert!(is_lost(lease.scope(soon(&locks)).await));
    drop(inner);

    let stranger = under(&beside).await.unwrap();
    stranger.release().await.unwrap();
    lease
        .scope(async {
            let stranger = soon(&locks).await.unwrap();
            stranger.release().await.unwrap();
            assert!(is_free(&locks).await);
            locks.mutex("a").run(async |_| ()).await.unwrap();
        })
        .await;
}

/// The first nested guard has left; what was acquired under it is still on its path.
#[tokio::test]
async fn a_nested_guard_keeps_siblings_out_after_its_parent_left() {
    let locks = LockManager::in_memory();
    let body = locks.mutex("a").run(async |_| {
        let first = locks.mutex("a").acquire().await.unwrap();
        let mut last = first.scope(again(&locks)).await.unwrap();
        first.release().await.unwrap();
        for _ in 0..3 {
            assert!(!is_free(&locks).await, "a sibling is in");
            let next = last.scope(again(&locks)).await.unwrap();
            last.release().await.unwrap();
            last = next;
        }
        let waiting = async { again(&locks).await.unwrap().is_held() };
        let leaving = async { last.release().await.unwrap() };
        assert!(tokio::join!(waiting, leaving).0);
    });
    body.await.unwrap();
}
