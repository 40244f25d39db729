//! Tests of crowds: ten thousand waiters, storms of releases, floods of acquires. Everybody is served or leaves on
//! time, and renewals and releases do not starve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::test_util::{self, Answer};
use lock_runtime::{LockError, LockManager};
use tests::eventually::PATIENCE;
use tests::faults::{connected, free_within, given_back, renewed, took};
use tests::{CommandStats, History, RedisServer, eventually, eventually_within};
use tokio::task::JoinSet;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn manager(server: &RedisServer) -> LockManager {
    tests::connected(&server.url()).await
}

async fn until_queued(locks: &LockManager, key: &str, waiters: usize) {
    eventually("all of them queue", async || {
        locks.inspect(key).await.unwrap().local_waiters == waiters
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_served_or_leave_on_time() {
    const EACH: usize = 5_000;
    let server = RedisServer::start();
    // The one at the front asks when it comes there, and no more.
    let builder = tests::builder().longest_nap(HOUR).call_timeout(LONG);
    let locks = connected(builder, &server.url()).await;
    let holder = manager(&server).await;
    let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicUsize::new(0));
    let gone = Arc::new(AtomicUsize::new(0));
    let mut patient = JoinSet::new();
    let mut hurried = JoinSet::new();
    for _ in 0..EACH {
        let request = locks.mutex("k").wait_forever();
        let (inside, served) = (inside.clone(), served.clone());
        patient.spawn(async move {
            let guard = request.acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
            inside.fetch_sub(1, SeqCst);
            served.fetch_add(1, SeqCst);
            given_back(guard).await;
        });
        if patient.len() == 1 {
            // It subscribes once it is refused. A wait that ends before the store has answered at all is not `Busy`.
            eventually("the first one is refused", async || {
                let is_of_a_lock = |channel: &String| !channel.contains("control");
                server.channels().iter().any(is_of_a_lock)
            })
            .await;
        }
        let wait = MS * fastrand::u32(2_000..3_000);
        let request = locks.mutex("k").wait(wait);
        let gone = gone.clone();
        hurried.spawn(async move {
            let since = Instant::now();
            let acquiring = async { (request.acquire().await, Instant::now()) };
            // How late the machine is by itself is told by a plain sleep, which begins after the wait.
            let sleeping = async {
                tokio::time::sleep(wait).await;
                Instant::now()
            };
            let ((answer, left), woken) = tokio::join!(acquiring, sleeping);
            gone.fetch_add(1, SeqCst);
            let late = left.saturating_duration_since(woken);
            (answer, wait, left - since, late)
        });
    }
    eventually("all of them have come", async || {
        // Some may have left before the last one came. They are counted first, so nobody is counted twice.
        let gone = gone.load(SeqCst);
        gone + locks.inspect("k").await.unwrap().local_waiters == 2 * EACH
    })
    .await;
    let (before, began) = (CommandStats::of(&server), Instant::now());
    let mut slowest = Duration::ZERO;
    while let Some(left) = hurried.join_next().await {
        let (answer, wait, waited, late) = left.unwrap();
        let error = answer.unwrap_err();
        assert!(matches!(error, LockError::Busy { .. }), "{error:?}");
        assert!(waited + MS >= wait, "{waited:?} of {wait:?}");
        slowest = slowest.max(late);
    }
    assert!(slowest < LONG, "left {slowest:?} late");
    let scripts = CommandStats::of(&server).since(&before).scripts();
    // A front and a successor ask twice each. Both managers say who they are, again every 30 s.
    let most = 8 + 2 * (began.elapsed().as_secs() / 30);
    assert!(scripts <= most, "{scripts} scripts by 10,000 waiters");
    assert_eq!(served.load(SeqCst), 0);
    let before = CommandStats::of(&server);
    guard.release().await.unwrap();
    while let Some(done) = patient.join_next().await {
        done.unwrap();
    }
    assert_eq!(served.load(SeqCst), EACH);
    // Each hand-over is a script at most.
    let scripts = CommandStats::of(&server).since(&before).scripts();
    assert!(scripts <= EACH as u64 + 100, "{scripts} scripts");
    drop((locks, holder));
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn caps_refuse_further_waiters_at_once_and_free_up_again() {
    let builder = tests::builder().max_waiters(30).max_waiters_per_key(20);
    let (locks, control) = test_util::of(builder).unwrap();
    let (a, b) = (
        locks.mutex("a").acquire().await.unwrap(),
        locks.mutex("b").acquire().await.unwrap(),
    );
    let mut waiters = Vec::new();
    for key in ["a"; 20].into_iter().chain(["b"; 10]) {
        waiters.push(tokio::spawn(locks.mutex(key).wait(LONG).acquire()));
    }
    until_queued(&locks, "a", 20).await;
    until_queued(&locks, "b", 10).await;
    control.next_acquire(Answer::Denied);
    for (key, cap) in [("a", 20), ("b", 30)] {
        let (error, waited) = took(locks.mutex(key).wait(LONG).acquire()).await;
        let error = error.unwrap_err();
        assert!(
            matches!(&error, LockError::TooManyWaiters { limit, .. } if *limit == cap),
            "{error:?}"
        );
        assert!(
            error.is_retryable() && error.to_string().contains(&format!("`{key}`")),
            "{error}"
        );
        assert_eq!(waited, Duration::ZERO);
    }
    assert_eq!(control.answers_left(), 1, "the store was not asked");
    control.forget_answers();
    // Waiters that leave make room.
    for waiter in waiters.drain(..5) {
        waiter.abort();
    }
    until_queued(&locks, "a", 15).await;
    waiters.push(tokio::spawn(locks.mutex("a").wait(LONG).acquire()));
    until_queued(&locks, "a", 16).await;
    drop((a, b));
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    for key in ["a", "b"] {
        control.assert_free(key).await;
    }
}

#[tokio::test]
async fn after_a_release_nothing_is_renewed() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    free_within(&locks, "k", LONG).await;
    eventually("it has said who it is", async || {
        server.records().len() == 1
    })
    .await;
    // The next inspections find their scripts loaded.
    locks.inspect("k").await.unwrap();
    let mut good_rounds = 0;
    eventually("no hold is lost in ten rounds", async || {
        let mut guards = Vec::new();
        for key in 0..10 {
            let request = locks.mutex(key.to_string()).lease(1_000 * MS);
            guards.push(request.acquire().await.unwrap());
        }
        // The sleep ends somewhere around the renewals, which are due after 270 to 333 ms.
        tokio::time::sleep(MS * fastrand::u32(250..340)).await;
        let mut are_good = true;
        for guard in guards {
            are_good &= given_back(guard).await;
        }
        let before = CommandStats::of(&server);
        // Every request that was on its way arrives before this answer.
        locks.inspect("k").await.unwrap();
        let renewed = CommandStats::of(&server).since(&before);
        // A busy machine may lose a hold. A task then deletes it in the store, beside the inspection.
        if are_good {
            assert_eq!(
                renewed.scripts(),
                2,
                "the inspection of a lock and of a counter: {renewed:?}"
            );
            good_rounds += 1;
        }
        good_rounds == 10
    })
    .await;
    let before = CommandStats::of(&server);
    // To show that nothing happens, the test waits for two cadences.
    tokio::time::sleep(700 * MS).await;
    let renewed = CommandStats::of(&server).since(&before);
    assert_eq!(renewed.scripts(), 0, "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_dropped_guards_frees_locks_and_starves_no_renewal() {
    const KEYS: usize = 3_000;
    let server = RedisServer::start();
    // Nothing becomes free, and no call is given up, by time.
    let builder = tests::builder().lease(HOUR).call_timeout(LONG);
    let locks = connected(builder, &server.url()).await;
    let kept = locks.mutex("kept").lease(15_000 * MS);
    let kept = kept.acquire().await.unwrap();
    // It storms until the lease would be over.
    let over = Instant::now() + kept.remaining();
    while Instant::now() < over {
        let mut acquiring = JoinSet::new();
        for key in 0..KEYS {
            acquiring.spawn(locks.mutex(key.to_string()).wait(LONG).acquire());
        }
        let mut guards = Vec::new();
        while let Some(guard) = acquiring.join_next().await {
            guards.push(guard.unwrap().unwrap());
        }
        drop(guards);
        eventually_within(LONG, "all are free", async || {
            assert!(kept.is_held());
            server.stray_keys() == ["lock:kept"]
        })
        .await;
    }
    kept.release().await.unwrap();
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_acquires_delays_no_renewal_and_no_release() {
    let server = RedisServer::start();
    let builder = tests::builder().lease(HOUR).call_timeout(LONG);
    let locks = connected(builder, &server.url()).await;
    let kept = locks.mutex("kept").lease(15_000 * MS);
    let kept = kept.acquire().await.unwrap();
    let flood: Vec<_> = (0..4)
        .map(|part| {
            let locks = locks.clone();
            tokio::spawn(async move {
                loop {
                    let mut acquiring = JoinSet::new();
                    for key in 0..300 {
                        acquiring.spawn(locks.mutex(format!("{part}-{key}")).wait(LONG).acquire());
                    }
                    while let Some(guard) = acquiring.join_next().await {
                        drop(guard.unwrap().unwrap());
                    }
                }
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let guard = locks.mutex("probe").wait(LONG).acquire().await.unwrap();
        let (released, waited) = took(guard.release()).await;
        released.unwrap();
        slowest = slowest.max(waited);
        assert!(kept.is_held());
    }
    for _ in 0..2 {
        renewed([&kept]).await;
    }
    // Only a release that is stuck takes so long.
    assert!(slowest < PATIENCE, "a release took {slowest:?}");
    for part in flood {
        part.abort();
        let _ = part.await;
    }
    kept.release().await.unwrap();
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_whose_guards_are_dropped_serves_every_manager() {
    let server = RedisServer::start();
    let history = Arc::new(History::new());
    let mut tasks = JoinSet::new();
    for m in 0..4 {
        let locks = manager(&server).await;
        for task in 0..16 {
            let (locks, history) = (locks.clone(), history.clone());
            tasks.spawn(async move {
                for _ in 0..20 {
                    let guard = locks
                        .mutex("hot")
                        .lease(HOUR)
                        .wait(LONG)
                        .acquire()
                        .await
                        .unwrap();
                    let token = guard.fencing_token().map(|token| token.get());
                    let hold = history.begin("hot", format_args!("{m}-{task}"), token);
                    hold.end();
                    drop(guard);
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(history.len(), 4 * 16 * 20);
    history.assert_exclusive();
    server.assert_deserted().await;
    let locks = manager(&server).await;
    free_within(&locks, "hot", LONG).await;
}
