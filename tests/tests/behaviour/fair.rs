//! A fair lock serves its waiters in the order in which they asked, whatever their manager.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockMode, LostReason, TryAcquire};
use tests::faults::kept_in_order;
use tests::{Store, eventually, left_of};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

async fn waiting(locks: &LockManager, count: u64) {
    eventually("they queue", async || {
        locks.inspect("k").await.unwrap().waiters == count
    })
    .await;
}

/// Starts a request and returns when it has its place behind `before` others.
async fn in_line<T: Send + 'static>(
    locks: &LockManager,
    before: u64,
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let task = tokio::spawn(request);
    waiting(locks, before + 1).await;
    task
}

/// Waits for the lock, notes its number, and gives the lock back.
fn turn(
    locks: LockManager,
    number: u64,
    served: &Arc<Mutex<Vec<u64>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let served = served.clone();
    async move {
        let guard = locks.fair("k").wait(LONG).acquire().await.unwrap();
        served.lock().unwrap().push(number);
        guard.release().await.unwrap();
    }
}

type Waiter = JoinHandle<Result<LockGuard, LockError>>;

/// Lets `b` queue for the lock, and `a` behind it.
async fn two_in_line(a: &LockManager, b: &LockManager) -> (Waiter, Waiter) {
    let first = in_line(a, 0, b.fair("k").wait(LONG).acquire()).await;
    let second = in_line(a, 1, a.fair("k").wait(LONG).acquire()).await;
    (first, second)
}

/// Waits until one of two is served. Returns its guard, whether it is the first, and the other one.
async fn served(mut first: Waiter, mut second: Waiter) -> (LockGuard, bool, Waiter) {
    let (guard, is_first) = tokio::select! {
        biased;
        guard = &mut first => (guard, true),
        guard = &mut second => (guard, false),
    };
    let next = if is_first { second } else { first };
    (guard.unwrap().unwrap(), is_first, next)
}

fn is_busy<T>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Busy { .. }))
}

tests::suite! {
    async fn a_free_fair_lock_is_had_at_once_and_again(store: &mut Store) {
        let locks = store.manager().await;
        let mut last = None;
        for _ in 0..5 {
            let guard = locks.fair("k").acquire().await.unwrap();
            let token = guard.fencing_token();
            assert!(token > last, "{token:?} after {last:?}");
            last = token;
            guard.release().await.unwrap();
        }
        let guard = locks.fair("k").try_acquire().await.unwrap().expect("it is free");
        let info = locks.inspect("k").await.unwrap();
        assert_eq!((info.waiters, info.mode), (0, Some(LockMode::Exclusive)));
        guard.release().await.unwrap();
    }

    async fn waiters_of_several_managers_are_served_in_order_of_arrival(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await, store.manager().await];
        kept_in_order(Duration::ZERO, async || {
            let holder = managers[0].fair("k").acquire().await.unwrap();
            let served = Arc::new(Mutex::new(Vec::new()));
            let mut waiters = Vec::new();
            for number in 0..24_u64 {
                let locks = managers[usize::try_from(number * 7 % 3).unwrap()].clone();
                waiters.push(in_line(&managers[0], number, turn(locks, number, &served)).await);
            }
            let seen = async || {
                let info = managers[1].inspect("k").await.unwrap();
                (info.waiters, info.mode, info.local_waiters) == (24, Some(LockMode::Fair), 8)
            };
            eventually("all of them are seen", seen).await;
            holder.release().await.unwrap();
            for waiter in waiters {
                waiter.await.unwrap();
            }
            *served.lock().unwrap() == (0..24).collect::<Vec<_>>()
        }).await;
    }

    async fn a_release_wakes_the_next_at_once_and_only_it(store: &mut Store) {
        let (a, b) = (store.manager().await, store.told().await);
        kept_in_order(300 * MS, async || {
            let holder = a.fair("k").acquire().await.unwrap();
            let (first, second) = two_in_line(&a, &b).await;
            // This is long enough for both to sleep on their subscriptions.
            tokio::time::sleep(300 * MS).await;
            let released = Instant::now();
            holder.release().await.unwrap();
            let (guard, is_first, next) = served(first, second).await;
            assert!(released.elapsed() < store.within(400 * MS), "{:?}", released.elapsed());
            assert!(!next.is_finished());
            guard.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
            is_first
        }).await;
    }

    async fn a_try_does_not_queue_and_does_not_jump_the_queue(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let holder = a.fair("k").acquire().await.unwrap();
        assert!(matches!(b.fair("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        assert!(is_busy(&b.fair("k").wait(Duration::ZERO).acquire().await));
        assert_eq!(a.inspect("k").await.unwrap().waiters, 0);
        let waiter = in_line(&a, 0, a.fair("k").wait(LONG).acquire()).await;
        for locks in [&a, &b] {
            assert!(matches!(locks.fair("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        }
        holder.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        guard.release().await.unwrap();
        let guard = b.fair("k").try_acquire().await.unwrap();
        guard.expect("nobody else is there").release().await.unwrap();
    }

    async fn a_waiter_that_gives_up_or_is_dropped_leaves_the_queue(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let holder = a.fair("k").acquire().await.unwrap();
        let started = Instant::now();
        // On a busy machine, the others need seconds to queue behind it.
        let wait = store.lasting(3_000 * MS);
        let impatient = in_line(&a, 0, b.fair("k").wait(wait).acquire()).await;
        let dropped = in_line(&a, 1, a.fair("k").wait(LONG).acquire()).await;
        let patient = in_line(&a, 2, b.fair("k").wait(LONG).acquire()).await;
        dropped.abort();
        waiting(&a, 2).await;
        assert!(is_busy(&impatient.await.unwrap()));
        assert!(started.elapsed() >= wait && started.elapsed() < store.within(6_000 * MS), "{:?}", started.elapsed());
        waiting(&a, 1).await;
        holder.release().await.unwrap();
        patient.await.unwrap().unwrap().release().await.unwrap();
        for locks in [&a, &b] {
            assert_eq!(locks.inspect("k").await.unwrap().local_waiters, 0);
        }
    }

    async fn the_first_one_leaves_a_free_lock_to_the_next_at_once(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let holder = a.fair("k").acquire().await.unwrap();
        let first = in_line(&a, 0, a.fair("k").wait(LONG).acquire()).await;
        let second = in_line(&a, 1, b.fair("k").wait(LONG).acquire()).await;
        tokio::time::sleep(300 * MS).await;
        first.abort();
        let released = Instant::now();
        holder.release().await.unwrap();
        let guard = second.await.unwrap().unwrap();
        assert!(released.elapsed() < store.within(600 * MS), "{:?}", released.elapsed());
        guard.release().await.unwrap();
    }

    async fn a_fair_lock_that_expires_goes_to_the_first(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let lease = store.lasting(2_000 * MS);
        kept_in_order(lease, async || {
            let request = a.fair("k").lease(lease).auto_renew(false);
            let lost = request.acquire().await.unwrap();
            let started = Instant::now();
            let (first, second) = two_in_line(&a, &b).await;
            let (guard, is_first, next) = served(first, second).await;
            assert!(started.elapsed() < store.within(4_500 * MS), "{:?}", started.elapsed());
            assert!(!next.is_finished() && !lost.is_held());
            guard.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
            is_first
        }).await;
    }

    async fn a_wait_far_longer_than_a_place_lives_keeps_its_place(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        kept_in_order(Duration::from_secs(7), async || {
            let served = Arc::new(Mutex::new(Vec::new()));
            let holder = a.fair("k").acquire().await.unwrap();
            let first = in_line(&a, 0, turn(a.clone(), 0, &served)).await;
            let second = in_line(&a, 1, turn(b.clone(), 1, &served)).await;
            tokio::time::sleep(7_000 * MS).await;
            let third = in_line(&a, 2, turn(a.clone(), 2, &served)).await;
            holder.release().await.unwrap();
            for next in [first, second, third] {
                next.await.unwrap();
            }
            *served.lock().unwrap() == [0, 1, 2]
        }).await;
    }

    async fn nested_requests_share_the_hold(store: &mut Store) {
        let locks = store.manager().await;
        let holder = locks.fair("k").acquire().await.unwrap();
        let other = in_line(&locks, 0, locks.fair("k").wait(LONG).acquire()).await;
        let (outer, inner) = holder
            .scope(async {
                let nested = locks.fair("k").acquire().await.unwrap();
                (holder.fencing_token(), nested.fencing_token())
            })
            .await;
        assert_eq!(outer, inner);
        assert!(!other.is_finished());
        holder.release().await.unwrap();
        other.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn a_mutex_and_a_fair_lock_of_one_name_exclude_each_other(store: &mut Store) {
        let locks = store.manager().await;
        let fair = locks.fair("k").acquire().await.unwrap();
        assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        fair.release().await.unwrap();
        let mutex = locks.mutex("k").acquire().await.unwrap();
        assert!(matches!(locks.fair("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        mutex.release().await.unwrap();
    }

    async fn a_forced_release_tells_the_holder_and_wakes_the_first(store: &mut Store) {
        let (a, b) = (store.manager().await, store.told().await);
        kept_in_order(300 * MS, async || {
            let holder = a.fair("k").acquire().await.unwrap();
            let (first, second) = two_in_line(&a, &b).await;
            tokio::time::sleep(300 * MS).await;
            let forced = Instant::now();
            assert!(b.force_release("k").await.unwrap());
            let (guard, is_first, next) = served(first, second).await;
            assert!(forced.elapsed() < store.within(400 * MS), "{:?}", forced.elapsed());
            assert_eq!(holder.lost().wait().await, LostReason::ForceReleased);
            let stays_as_it_is = a.inspect("k").await.unwrap().waiters == 1;
            guard.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
            is_first && stays_as_it_is
        }).await;
    }

    async fn a_fair_hold_is_renewed_past_its_lease(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let lease = store.renewing(1_000 * MS);
        let holder = a.fair("k").lease(lease).acquire().await.unwrap();
        let waiter = in_line(&a, 0, b.fair("k").wait(LONG).acquire()).await;
        store.until_renewed(lease, async || left_of(&b, "k").await.min(holder.remaining())).await;
        assert!(holder.is_held() && !waiter.is_finished());
        holder.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn waiters_of_a_fair_lock_beyond_the_caps_are_refused(store: &mut Store) {
        let builder = tests::builder().max_waiters_per_key(2).max_waiters(3);
        let locks = store.connect(builder).await;
        let k = locks.fair("k").acquire().await.unwrap();
        let other = locks.mutex("other").acquire().await.unwrap();
        let first = in_line(&locks, 0, locks.fair("k").wait(LONG).acquire()).await;
        let second = in_line(&locks, 1, locks.fair("k").wait(LONG).acquire()).await;
        let refused = |result: Result<lock_runtime::LockGuard, LockError>, cap| match result {
            Err(LockError::TooManyWaiters { limit, .. }) => assert_eq!(limit, cap),
            other => panic!("expected TooManyWaiters, got {other:?}"),
        };
        refused(locks.fair("k").wait(LONG).acquire().await, 2);
        let behind = tokio::spawn(locks.mutex("other").wait(LONG).acquire());
        eventually("it queues", async || {
            locks.inspect("other").await.unwrap().local_waiters == 1
        })
        .await;
        refused(locks.mutex("other").wait(LONG).acquire().await, 3);
        k.release().await.unwrap();
        for next in [first, second] {
            next.await.unwrap().unwrap().release().await.unwrap();
        }
        other.release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn after_a_flush_waiters_queue_again(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let holder = a.fair("k").acquire().await.unwrap();
        let passing = |locks: &LockManager| {
            let request = locks.fair("k").wait(LONG);
            async move { request.acquire().await.unwrap().release().await.unwrap() }
        };
        let waiters = [
            in_line(&a, 0, passing(&a)).await,
            in_line(&a, 1, passing(&b)).await,
            in_line(&a, 2, passing(&b)).await,
        ];
        store.flush();
        // The lock is gone, so the first waiter to ask gets it. Their order may be another one now.
        for waiter in waiters {
            waiter.await.unwrap();
        }
        drop(holder);
    }

    async fn a_shutdown_sends_waiters_away_and_out_of_the_queue(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let holder = a.fair("k").acquire().await.unwrap();
        let waiter = in_line(&a, 0, b.fair("k").wait(LONG).acquire()).await;
        b.shutdown().await;
        let sent_away = waiter.await.unwrap();
        assert!(matches!(sent_away, Err(LockError::ShuttingDown { .. })), "{sent_away:?}");
        waiting(&a, 0).await;
        assert!(b.fair("k").try_acquire().await.is_err());
        holder.release().await.unwrap();
    }
}
