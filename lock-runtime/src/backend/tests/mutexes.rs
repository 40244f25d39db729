//! What mutexes do on any store, under everything above the trait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{SECOND, Store, manager};
use crate::TryAcquire;
use crate::values::{LockError, LostReason};

pub(super) async fn a_mutex_admits_one_at_a_time_and_serves_everybody<S: Store>() {
    let store = S::default();
    let inside = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let locks = manager(&store);
        for _ in 0..10 {
            let (locks, inside, served) = (locks.clone(), inside.clone(), served.clone());
            callers.spawn(async move {
                for _ in 0..5 {
                    let guard = locks.mutex("k").wait_forever().acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    tokio::time::sleep(SECOND / 100).await;
                    inside.store(false, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    assert_eq!(served.load(Ordering::SeqCst), 150);
}

pub(super) async fn tokens_rise_and_busy_locks_are_refused_or_waited_for<S: Store>() {
    let store = S::default();
    let (locks, other) = (manager(&store), manager(&store));
    let guard = locks.mutex("k").acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    assert!(matches!(
        other.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    let refused = other.mutex("k").wait(SECOND).acquire().await;
    assert!(
        matches!(refused, Err(LockError::Busy { .. })),
        "{refused:?}"
    );
    let waiting = tokio::spawn(other.mutex("k").wait(60 * SECOND).acquire());
    tokio::time::sleep(SECOND).await;
    guard.release().await.unwrap();
    // Without a push, a waiter asks again within the longest nap.
    let second = waiting.await.unwrap().unwrap();
    assert!(second.fencing_token().unwrap() > first);
}

pub(super) async fn a_hold_is_renewed_while_it_lives_and_a_fixed_lease_ends<S: Store>() {
    let store = S::default();
    let (locks, other) = (manager(&store), manager(&store));
    let held = locks.mutex("a").lease(3 * SECOND).acquire().await.unwrap();
    let request = locks.mutex("b").lease(3 * SECOND).auto_renew(false);
    let fixed = request.acquire().await.unwrap();
    assert_eq!(fixed.lost().wait().await, LostReason::Expired);
    tokio::time::sleep(60 * SECOND).await;
    assert!(held.is_held());
    assert!(matches!(
        other.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(matches!(
        other.mutex("b").try_acquire().await.unwrap(),
        TryAcquire::Acquired(_)
    ));
}

pub(super) async fn a_forced_release_is_told_and_a_lock_can_be_inspected<S: Store>() {
    let store = S::default();
    let (first, second) = (&manager(&store), &manager(&store));
    for (holder, operator) in [(first, first), (first, second), (second, first)] {
        let guard = holder.mutex("k").acquire().await.unwrap();
        assert!(operator.inspect("k").await.unwrap().held);
        assert!(operator.force_release("k").await.unwrap());
        assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
        assert!(!operator.inspect("k").await.unwrap().held);
    }
}

pub(super) async fn a_request_that_is_dropped_unpolled_has_done_nothing<S: Store>() {
    let store = S::default();
    let (locks, other) = (manager(&store), manager(&store));
    drop(locks.mutex("k").acquire());
    let guard = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(guard, TryAcquire::Acquired(_)));
}

pub(super) async fn nested_requests_and_sets_of_locks_need_nothing_of_the_store<S: Store>() {
    let store = S::default();
    let locks = manager(&store);
    let nested = locks.mutex("k").run(async |_| {
        let inner = locks.mutex("k").try_acquire().await.unwrap();
        matches!(inner, TryAcquire::Acquired(_))
    });
    assert!(nested.await.unwrap());
    let set = locks.multi([locks.mutex("a"), locks.mutex("b")]);
    let guard = set.acquire().await.unwrap();
    assert!(matches!(
        locks.mutex("b").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    locks.shutdown().await;
}
