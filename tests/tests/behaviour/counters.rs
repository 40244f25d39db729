//! Tests of the locks that have no holder: plain semaphores and count-down latches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockMode, TryAcquire};
use tests::stops::{DRAIN, in_one_of_a_few_rounds};
use tests::{Store, answered, eventually};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn is_not_set<T>(answer: Result<T, LockError>) -> bool {
    matches!(answer, Err(LockError::NotSet { .. }))
}

fn is_config<T: std::fmt::Debug>(answer: Result<T, LockError>) -> bool {
    matches!(answer, Err(LockError::InvalidConfig { .. }))
}

/// Waits until it is told that the counter is not as it should be, and returns its name and the time that the wait
/// took.
async fn busy<T: std::fmt::Debug>(
    wait: impl AsyncFn() -> Result<T, LockError>,
) -> (String, Duration) {
    let mut started = Instant::now();
    let waited = answered(async || {
        started = Instant::now();
        wait().await
    });
    match waited.await {
        Err(LockError::Busy { name, .. }) => (name, started.elapsed()),
        other => panic!("{other:?}"),
    }
}

tests::suite! {
    async fn plain_permits_are_taken_and_given_back_by_anybody(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let (one, other) = (a.plain_semaphore("s"), b.plain_semaphore("s"));
        assert!(one.try_set_permits(3).await.unwrap());
        assert!(!other.try_set_permits(9).await.unwrap());
        assert!(matches!(one.permits(2).try_acquire().await.unwrap(), TryAcquire::Acquired(())));
        assert!(!matches!(other.permits(2).try_acquire().await.unwrap(), TryAcquire::Acquired(())));
        assert_eq!(other.available().await.unwrap(), 1);
        other.release(2).await.unwrap();
        other.add_permits(-1).await.unwrap();
        assert_eq!(one.available().await.unwrap(), 2);
        assert!(one.delete().await.unwrap());
    }

    async fn plain_permits_are_never_too_many(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await];
        let semaphore = managers[0].plain_semaphore("s");
        semaphore.try_set_permits(4).await.unwrap();
        let taken = Arc::new(AtomicU32::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..16 {
            let (semaphore, taken) = (managers[task % 2].plain_semaphore("s"), taken.clone());
            tasks.spawn(async move {
                for round in 0..10 {
                    let permits = u32::try_from((task + round) % 3 + 1).unwrap();
                    semaphore.permits(permits).wait(LONG).acquire().await.unwrap();
                    let now = taken.fetch_add(permits, Ordering::SeqCst) + permits;
                    assert!(now <= 4, "{now} permits are out");
                    sleep(MS).await;
                    taken.fetch_sub(permits, Ordering::SeqCst);
                    semaphore.release(permits).await.unwrap();
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(semaphore.available().await.unwrap(), 4);
        semaphore.delete().await.unwrap();
    }

    async fn a_wait_for_plain_permits_is_woken_and_bounded(store: &mut Store) {
        let (a, b) = (store.manager().await, store.told().await);
        let (one, other) = (a.plain_semaphore("s"), b.plain_semaphore("s"));
        one.try_set_permits(1).await.unwrap();
        one.permits(1).wait(LONG).acquire().await.unwrap();
        let (name, took) = busy(async || other.permits(1).wait(300 * MS).acquire().await).await;
        assert_eq!(name, "s");
        assert!(took >= 300 * MS && took < store.within(1_500 * MS), "{took:?}");
        let waiting = tokio::spawn({
            let other = other.clone();
            async move { other.permits(1).wait_forever().acquire().await }
        });
        sleep(300 * MS).await;
        let released = Instant::now();
        one.release(1).await.unwrap();
        timeout(LONG, waiting).await.expect("it is told").unwrap().unwrap();
        assert!(released.elapsed() < store.within(500 * MS), "{:?}", released.elapsed());
        other.delete().await.unwrap();
    }

    async fn what_plain_permits_cannot_be_is_refused(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = locks.plain_semaphore("s");
        assert!(is_not_set(semaphore.permits(1).wait(LONG).acquire().await), "never set");
        assert!(is_not_set(semaphore.release(1).await));
        semaphore.try_set_permits(1).await.unwrap();
        for permits in [0, 1_001] {
            assert!(is_config(semaphore.permits(permits).wait(LONG).acquire().await));
            assert!(is_config(semaphore.permits(permits).try_acquire().await));
            assert!(is_config(semaphore.release(permits).await));
        }
        let info = locks.inspect("s").await.unwrap();
        assert_eq!((info.held, info.mode, info.available), (false, Some(LockMode::Counter), Some(1)));
        assert!(!locks.force_release("s").await.unwrap());
        assert_eq!(semaphore.available().await.unwrap(), 1);
        semaphore.delete().await.unwrap();
    }

    async fn plain_permits_granted_to_nobody_come_back(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = locks.plain_semaphore("s");
        semaphore.try_set_permits(1).await.unwrap();
        for yields in 0..40 {
            let pending = tokio::spawn({
                let semaphore = semaphore.clone();
                async move { semaphore.permits(1).wait(LONG).acquire().await }
            });
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            pending.abort();
            if let Ok(acquired) = pending.await {
                acquired.unwrap();
                semaphore.release(1).await.unwrap();
            }
            eventually("it is back", async || semaphore.available().await.unwrap() == 1).await;
        }
        semaphore.delete().await.unwrap();
    }

    async fn a_latch_opens_when_everything_has_happened(store: &mut Store) {
        let (a, b) = (store.told().await, store.told().await);
        let (latch, other) = (a.latch("l"), b.latch("l"));
        assert_eq!(latch.count().await.unwrap(), 0);
        latch.opened().wait(LONG).await.unwrap();
        assert!(latch.try_set_count(3).await.unwrap());
        assert!(!other.try_set_count(9).await.unwrap());
        let waiting: Vec<_> = (0..20).map(|waiter| {
            let latch = [&latch, &other][waiter % 2].clone();
            tokio::spawn(async move { latch.opened().wait_forever().await })
        }).collect();
        for left in [2, 1] {
            assert_eq!(other.count_down().await.unwrap(), left);
            assert_eq!(latch.count().await.unwrap(), left);
        }
        sleep(300 * MS).await;
        assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
        let opened = Instant::now();
        assert_eq!(latch.count_down().await.unwrap(), 0);
        for waiter in waiting {
            timeout(LONG, waiter).await.expect("it is told").unwrap().unwrap();
        }
        assert!(opened.elapsed() < store.within(600 * MS), "{:?}", opened.elapsed());
        assert_eq!(latch.count_down().await.unwrap(), 0, "it stays open");
        assert!(latch.try_set_count(1).await.unwrap(), "and can be closed again");
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }

    async fn a_wait_for_a_latch_is_bounded_and_a_deleted_latch_is_open(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let latch = locks.latch("l");
        assert!(is_config(latch.try_set_count(0).await));
        assert!(is_config(latch.try_set_count(u64::MAX).await));
        latch.try_set_count(1).await.unwrap();
        let (_, took) = busy(async || latch.opened().wait(300 * MS).await).await;
        assert!(took >= 300 * MS && took < store.within(1_500 * MS), "{took:?}");
        let closed = latch.opened().wait(Duration::ZERO).await;
        assert!(matches!(closed, Err(LockError::Busy { .. })));
        let waiting = tokio::spawn({
            let latch = other.latch("l");
            async move { latch.opened().wait(LONG).await }
        });
        sleep(200 * MS).await;
        let deleted = Instant::now();
        assert!(latch.delete().await.unwrap());
        assert!(!latch.delete().await.unwrap());
        waiting.await.unwrap().unwrap();
        assert!(deleted.elapsed() < store.within(500 * MS), "{:?}", deleted.elapsed());
    }

    async fn a_shutdown_sends_those_away_who_wait_for_a_counter(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (latch, semaphore) = (other.latch("l"), other.plain_semaphore("s"));
        latch.try_set_count(1).await.unwrap();
        semaphore.try_set_permits(0).await.unwrap();
        let (mine, plain) = (locks.latch("l"), locks.plain_semaphore("s"));
        let waiting = [
            tokio::spawn(async move { mine.opened().wait_forever().await }),
            tokio::spawn(async move { plain.permits(1).wait_forever().acquire().await }),
        ];
        sleep(200 * MS).await;
        locks.shutdown().await;
        for waiter in waiting {
            let sent_away = waiter.await.unwrap();
            assert!(matches!(sent_away, Err(LockError::ShuttingDown { .. })), "{sent_away:?}");
        }
        latch.delete().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn a_shutdown_lets_a_body_return_permits_and_count_down(store: &mut Store) {
        let other = store.manager().await;
        // A shutdown waits for a release for two seconds at most, and a machine that stands still may need longer.
        in_one_of_a_few_rounds(Duration::ZERO, "the lock is given back", async || {
            let locks = store.connect(tests::builder().shutdown_grace(LONG)).await;
            let (plain, latch) = (locks.plain_semaphore("s"), locks.latch("l"));
            plain.try_set_permits(1).await.unwrap();
            latch.try_set_count(1).await.unwrap();
            let guard = locks.mutex("k").acquire().await.unwrap();
            plain.permits(1).wait(LONG).acquire().await.unwrap();
            let stopping = tokio::spawn({
                let locks = locks.clone();
                async move { locks.shutdown().await }
            });
            eventually("nothing new is admitted", async || {
                matches!(plain.permits(1).try_acquire().await, Err(LockError::ShuttingDown { .. }))
            }).await;
            for refused in [
                latch.opened().wait(LONG).await,
                latch.try_set_count(1).await.map(drop),
                plain.try_set_permits(1).await.map(drop),
            ] {
                assert!(matches!(refused, Err(LockError::ShuttingDown { .. })), "{refused:?}");
            }
            assert_eq!(plain.available().await.unwrap(), 0);
            plain.release(1).await.unwrap();
            assert_eq!(latch.count().await.unwrap(), 1);
            assert_eq!(latch.count_down().await.unwrap(), 0);
            // Not tokio's clock, which is paused beside a store in memory.
            let began = std::time::Instant::now();
            let released = guard.release().await;
            stopping.await.unwrap();
            let in_time = began.elapsed() < DRAIN;
            assert!(released.is_ok() || !in_time, "{released:?}");
            if !in_time {
                other.force_release("k").await.unwrap();
            }
            let late = latch.count_down().await;
            assert!(matches!(late, Err(LockError::ShuttingDown { .. })), "{late:?}");
            let plain = other.plain_semaphore("s");
            assert_eq!(plain.available().await.unwrap(), 1);
            assert_eq!(other.latch("l").count().await.unwrap(), 0);
            plain.delete().await.unwrap();
            in_time
        }).await;
    }

    async fn a_caller_at_the_front_after_its_wait_takes_nothing(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (semaphore, others) = (locks.plain_semaphore("s"), other.plain_semaphore("s"));
        semaphore.try_set_permits(0).await.unwrap();
        let wait = 1_000 * MS;
        let mut front = Box::pin(semaphore.permits(1).wait(LONG).acquire());
        // The front is polled for long enough to get its first answers, and not after that.
        let first = timeout(300 * MS, &mut front).await;
        assert!(first.is_err(), "{first:?}");
        let mut next = Box::pin(semaphore.permits(1).wait(wait).acquire());
        let queued = timeout(Duration::ZERO, &mut next).await;
        assert!(queued.is_err(), "{queued:?}");
        others.release(1).await.unwrap();
        sleep(wait + MS).await;
        drop(front);
        let late = next.await;
        assert!(matches!(late, Err(LockError::Busy { .. })), "{late:?}");
        eventually("nothing was taken", async || others.available().await.unwrap() == 1).await;
        others.delete().await.unwrap();
    }

    async fn waiters_of_a_latch_are_counted_and_capped(store: &mut Store) {
        let builder = tests::builder();
        let locks = store.connect(builder.max_waiters_per_key(2)).await;
        let latch = locks.latch("l");
        latch.try_set_count(1).await.unwrap();
        let waiting: Vec<_> = (0..2).map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move { latch.opened().wait(LONG).await })
        }).collect();
        // One of the two asks the store for both.
        eventually("two wait", async || {
            locks.inspect("l").await.unwrap().local_waiters == 2
        }).await;
        let refused = latch.opened().wait(LONG).await;
        assert!(matches!(refused, Err(LockError::TooManyWaiters { limit: 2, .. })), "{refused:?}");
        latch.count_down().await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap().unwrap();
        }
    }

    async fn the_managers_wait_bounds_latches_and_plain_permits(store: &mut Store) {
        let builder = tests::builder().wait(300 * MS);
        let locks = store.connect(builder).await;
        let (latch, plain) = (locks.latch("l"), locks.plain_semaphore("s"));
        latch.try_set_count(1).await.unwrap();
        plain.try_set_permits(0).await.unwrap();
        let opened = busy(async || latch.opened().await).await;
        let acquired = busy(async || plain.permits(1).acquire().await).await;
        for (_, took) in [opened, acquired] {
            assert!(took >= 300 * MS && took < store.within(1_500 * MS), "{took:?}");
        }
        latch.delete().await.unwrap();
        plain.delete().await.unwrap();
    }
}
