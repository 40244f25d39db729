//! Tests of how long a request waits, and in which order waiters are served.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, TryAcquire};
use tests::{Store, answered, eventually, had_at_once};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Polls the future once in this task, so that it has its place in the queue, and then lets it run.
async fn queue<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let mut future = Box::pin(future);
    assert!(
        tokio::time::timeout(Duration::ZERO, &mut future)
            .await
            .is_err(),
        "had to wait"
    );
    tokio::spawn(future)
}

fn busy<T: std::fmt::Debug>(result: Result<T, LockError>) -> (Duration, Option<Duration>) {
    match result {
        Err(LockError::Busy {
            waited,
            retry_after,
            ..
        }) => (waited, retry_after),
        other => panic!("expected Busy, got {other:?}"),
    }
}

async fn took<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    let value = future.await;
    (value, started.elapsed())
}

tests::suite! {
    also on a quorum:
    async fn a_free_lock_is_had_at_once(store: &mut Store) {
        let locks = store.manager().await;
        let (guard, elapsed) = took(locks.mutex("k").wait(LONG).acquire()).await;
        assert!(elapsed < store.within(2_000 * MS), "{elapsed:?}");
        guard.unwrap().release().await.unwrap();
        let again = had_at_once(async || locks.mutex("k").try_acquire().await).await;
        again.release().await.unwrap();
    }

    async fn a_wait_ends_in_time_and_says_how_long_it_was(store: &mut Store) {
        let (holder, waiter) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        for locks in [&holder, &waiter] {
            let mut elapsed = Duration::ZERO;
            let result = answered(async || {
                let result;
                (result, elapsed) = took(locks.mutex("k").wait(300 * MS).acquire()).await;
                result
            });
            let (waited, retry_after) = busy(result.await);
            assert!(elapsed >= 300 * MS && elapsed < store.within(900 * MS), "{elapsed:?}");
            assert!(waited >= 295 * MS && waited <= elapsed, "{waited:?}");
            if let Some(left) = retry_after {
                assert!(left > store.lease() / 2 && left <= store.lease(), "{left:?}");
            }
        }
        guard.release().await.unwrap();
    }

    async fn a_zero_wait_asks_once(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let request = other.mutex("k").wait(Duration::ZERO);
        let free = had_at_once(async || request.clone().acquire().await.map(TryAcquire::Acquired)).await;
        free.release().await.unwrap();
        let guard = holder.mutex("k").acquire().await.unwrap();
        let mut elapsed = Duration::ZERO;
        let result = answered(async || {
            let result;
            (result, elapsed) = took(request.clone().acquire()).await;
            result
        });
        busy(result.await);
        assert!(elapsed < store.within(2_000 * MS), "{elapsed:?}");
        guard.release().await.unwrap();
    }

    async fn try_never_waits(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        for locks in [&holder, &other] {
            let mut elapsed = Duration::ZERO;
            let result = answered(async || {
                let result;
                (result, elapsed) = took(locks.mutex("k").wait(LONG).try_acquire()).await;
                result
            });
            assert!(matches!(result.await.unwrap(), TryAcquire::Busy { .. }));
            assert!(elapsed < store.within(2_000 * MS), "{elapsed:?}");
        }
        guard.release().await.unwrap();
    }

    async fn a_try_tells_when_to_ask_again_if_the_store_was_asked(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        let TryAcquire::Busy { retry_after, .. } = tried.unwrap() else {
            panic!("it is held");
        };
        let left = retry_after.expect("the store knows the lease");
        assert!(left <= store.lease() && left > store.lease() / 4, "{left:?}");
        let TryAcquire::Busy { retry_after, .. } = holder.mutex("k").try_acquire().await.unwrap() else {
            panic!("it is held");
        };
        assert_eq!(retry_after, None, "the holder's own process does not ask the store");
        guard.release().await.unwrap();
    }

    async fn try_does_not_jump_the_local_queue(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let waiter = queue(locks.mutex("k").wait(LONG).acquire()).await;
        guard.release().await.unwrap();
        assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn a_release_wakes_a_waiter_of_another_manager_at_once(store: &mut Store) {
        let (holder, waiter) = (store.manager().await, store.told().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        let pending = tokio::spawn(waiter.mutex("k").wait(LONG).acquire());
        // This is long enough for the waiter to sleep on its subscription, whatever its first tries cost.
        tokio::time::sleep(300 * MS).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = pending.await.unwrap().unwrap();
        assert!(released.elapsed() < store.within(400 * MS), "{:?}", released.elapsed());
        store.given_back(guard).await;
    }

    async fn a_lock_that_expires_is_had_without_any_wake_up(store: &mut Store) {
        let (holder, waiter) = (store.manager().await, store.told().await);
        let request = holder.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        // The lease begins before the holder hears of it.
        let asked = Instant::now();
        let guard = request.acquire().await.unwrap();
        let (next, elapsed) = took(waiter.mutex("k").wait(LONG).acquire()).await;
        assert!(asked.elapsed() > 980 * MS && elapsed < store.within(2_500 * MS), "{elapsed:?}");
        next.unwrap().release().await.unwrap();
        drop(guard);
    }

    async fn waiters_of_one_process_are_served_in_the_order_they_came(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for number in 0..100 {
            let (locks, served) = (locks.clone(), Arc::clone(&served));
            let waiter = queue(async move {
                let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                served.lock().unwrap().push(number);
                guard.release().await.unwrap();
            });
            waiters.push(waiter.await);
        }
        guard.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    async fn a_waiter_that_gives_up_does_not_block_those_behind_it(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let impatient = queue(locks.mutex("k").wait(2_000 * MS).acquire()).await;
        let dropped = queue(locks.mutex("k").wait(LONG).acquire()).await;
        let patient = queue(locks.mutex("k").wait(LONG).acquire()).await;
        busy(impatient.await.unwrap());
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        guard.release().await.unwrap();
        patient.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn waiting_for_ever_is_not_bounded_by_the_default_wait(store: &mut Store) {
        let builder = tests::builder().wait(1_000 * MS);
        let (holder, waiter) = (store.manager().await, store.connect(builder).await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        busy(answered(async || waiter.mutex("k").acquire().await).await);
        let pending = tokio::spawn(waiter.mutex("k").wait_forever().acquire());
        tokio::time::sleep(1_500 * MS).await;
        assert!(!pending.is_finished());
        guard.release().await.unwrap();
        store.given_back(pending.await.unwrap().unwrap()).await;
    }

    async fn waiters_beyond_the_caps_are_refused(store: &mut Store) {
        let builder = tests::builder().max_waiters_per_key(2).max_waiters(3);
        let locks = store.connect(builder).await;
        let a = locks.mutex("a").acquire().await.unwrap();
        let b = locks.mutex("b").acquire().await.unwrap();
        let mut queued = Vec::new();
        for key in ["a", "a", "b"] {
            queued.push(queue(locks.mutex(key).wait(LONG).acquire()).await);
        }
        for (key, cap) in [("a", 2), ("b", 3)] {
            match locks.mutex(key).wait(LONG).acquire().await {
                Err(LockError::TooManyWaiters { limit, .. }) => assert_eq!(limit, cap),
                other => panic!("expected TooManyWaiters, got {other:?}"),
            }
        }
        a.release().await.unwrap();
        b.release().await.unwrap();
        for guard in queued {
            guard.await.unwrap().unwrap().release().await.unwrap();
        }
    }

    async fn keys_do_not_disturb_each_other(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("a").acquire().await.unwrap();
        let (other, elapsed) = took(locks.mutex("b").acquire()).await;
        assert!(elapsed < store.within(2_000 * MS), "{elapsed:?}");
        other.unwrap().release().await.unwrap();
        guard.release().await.unwrap();
        eventually("both are free", async || {
            let a = answered(async || locks.mutex("a").try_acquire().await).await.unwrap();
            let b = answered(async || locks.mutex("b").try_acquire().await).await.unwrap();
            matches!((a, b), (TryAcquire::Acquired(_), TryAcquire::Acquired(_)))
        }).await;
    }

    async fn the_caller_who_asks_for_the_others_counts_towards_the_cap(store: &mut Store) {
        let builder = tests::builder().max_waiters_per_key(4);
        let (locks, other) = (store.connect(builder).await, store.manager().await);
        let guard = other.mutex("k").acquire().await.unwrap();
        tests::only_so_many_wait(&locks, "k", 4, &locks.mutex("k")).await;
        guard.release().await.unwrap();
    }
}
