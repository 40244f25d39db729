//! A store that keeps mutexes only, under everything above the trait: what it does not have, it need not write.
//!
//! To try another store, change `Table` and `manager`.

mod mutex_store;

use crate::TryAcquire;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use self::mutex_store::{MutexStore, Table};
use crate::api::manager::LockManager;
use crate::values::error::{LockError, LostReason};
use crate::values::options::Options;

const SECOND: Duration = Duration::from_secs(1);

fn manager(table: &Arc<Table>) -> LockManager {
    LockManager::build(Options::default(), |events| {
        Arc::new(MutexStore::new(table, events))
    })
}

#[tokio::test(start_paused = true)]
async fn a_mutex_admits_one_at_a_time_and_serves_everybody() {
    let table = Arc::default();
    let inside = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let locks = manager(&table);
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

#[tokio::test(start_paused = true)]
async fn tokens_rise_and_busy_locks_are_refused_or_waited_for() {
    let table = Arc::default();
    let (locks, other) = (manager(&table), manager(&table));
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
    // Without a push, a waiter asks again within the cap of a sleep.
    let second = waiting.await.unwrap().unwrap();
    assert!(second.fencing_token().unwrap() > first);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_while_it_lives_and_a_fixed_lease_ends() {
    let table = Arc::default();
    let (locks, other) = (manager(&table), manager(&table));
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

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_told_and_a_lock_can_be_inspected() {
    let table = Arc::default();
    let (locks, other) = (manager(&table), manager(&table));
    for operator in [&locks, &other] {
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert!(operator.inspect("k").await.unwrap().held);
        assert!(operator.force_release("k").await.unwrap());
        assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
        assert!(!operator.inspect("k").await.unwrap().held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_unpolled_has_done_nothing() {
    let table = Arc::default();
    let (locks, other) = (manager(&table), manager(&table));
    drop(locks.mutex("k").acquire());
    let guard = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(guard, TryAcquire::Acquired(_)));
}

#[tokio::test(start_paused = true)]
async fn nested_requests_and_sets_of_locks_need_nothing_of_the_store() {
    let locks = manager(&Arc::default());
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

#[tokio::test]
async fn kinds_that_a_store_lacks_are_refused_by_its_name_and_theirs() {
    let locks = manager(&Arc::default());
    let semaphore = locks.semaphore("s");
    let latch = locks.latch("l");
    let refused = [
        (locks.fair("k").acquire().await.map(drop), "fair locks"),
        (
            locks.read("k").acquire().await.map(drop),
            "read/write locks",
        ),
        (
            locks.write("k").try_acquire().await.map(drop),
            "read/write locks",
        ),
        (locks.fenced("k").acquire().await.map(drop), "fenced locks"),
        (semaphore.permits(1).acquire().await.map(drop), "semaphores"),
        (semaphore.try_set_permits(1).await.map(drop), "semaphores"),
        (latch.try_set_count(1).await.map(drop), "latches"),
    ];
    for (answer, what) in refused {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(error.contains("the memory store"), "{error}");
    }
}
