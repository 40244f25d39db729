//! Tests of locks that stay with a process between its holds: it has them again without a request, and gives them up to
//! others who ask.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{
    LockError, LockGuard, LockManager, LockRequest, LostReason, Replicas, TryAcquire,
};
use tests::eventually::PATIENCE;
use tests::faults::given_back;
use tests::stops::{in_one_of_a_few_rounds, shut_down};
use tests::{CommandStats, History, RedisServer, Store, eventually, eventually_within, left_of};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
/// A time to keep a lock that is longer than any test.
const KEEP: Duration = Duration::from_secs(600);

fn keeper(locks: &LockManager) -> LockRequest {
    locks.mutex("k").keep_for(KEEP)
}

/// Acquires and releases the lock until it is kept. A process that has just waited for it counts as one that waits for
/// two more seconds: until then it is given back at once.
async fn keep(locks: &LockManager) {
    eventually("it is kept", async || {
        let guard = keeper(locks).acquire().await.unwrap();
        sleep(3 * MS).await;
        guard.release().await.unwrap();
        sleep(3 * MS).await;
        locks.inspect("k").await.unwrap().kept
    })
    .await;
}

/// Tries until it gets the lock, because a try does not wait for a keeper that gets no CPU for 20 ms. A keeper that
/// does not give the lock up keeps it for minutes.
async fn given_up(request: LockRequest) -> LockGuard {
    let asked = Instant::now();
    loop {
        if let TryAcquire::Acquired(guard) = request.clone().try_acquire().await.unwrap() {
            return guard;
        }
        assert!(asked.elapsed() < PATIENCE, "it is not given up");
    }
}

async fn is_busy(request: LockRequest) -> bool {
    matches!(
        request.try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    )
}

tests::suite! {
    not in databases:
    async fn a_kept_lock_is_had_again_with_a_larger_token(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        keep(&locks).await;
        let mut last = None;
        for _ in 0..50 {
            let guard = keeper(&locks).try_acquire().await.unwrap().expect("it is kept");
            assert!(guard.is_held() && guard.fencing_token() > last);
            last = guard.fencing_token();
            sleep(MS).await;
            guard.release().await.unwrap();
            sleep(MS).await;
        }
        assert!(locks.inspect("k").await.unwrap().kept);
        let guard = other.mutex("k").acquire().await.unwrap();
        assert!(guard.fencing_token() > last);
        guard.release().await.unwrap();
    }

    async fn others_who_try_get_a_kept_lock_that_nobody_uses(store: &mut Store) {
        let locks = store.manager().await;
        let mut last = None;
        for _ in 0..3 {
            keep(&locks).await;
            let guard = given_up(store.manager().await.mutex("k")).await;
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().await.unwrap();
        }
    }

    async fn waiters_and_a_wait_of_zero_get_a_kept_lock_at_once(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let at_once = store.within(900 * MS);
        for wait in [Duration::ZERO, 60_000 * MS] {
            keep(&locks).await;
            let asked = Instant::now();
            let guard = loop {
                // As a try, a wait of zero gives the keeper 20 ms.
                match other.mutex("k").wait(wait).acquire().await {
                    Err(LockError::Busy { .. }) if asked.elapsed() < at_once => {}
                    given_up => break given_up.unwrap(),
                }
            };
            assert!(asked.elapsed() < at_once, "{:?}", asked.elapsed());
            store.given_back(guard).await;
        }
    }

    async fn a_set_of_locks_gets_kept_ones_from_another_process(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let set = || other.multi(["j", "k"].map(|name| other.mutex(name)));
        keep(&locks).await;
        store.given_back(set().acquire().await.unwrap()).await;
    }

    async fn a_fair_request_gets_a_kept_lock_that_nobody_uses(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        keep(&locks).await;
        given_up(other.fair("k")).await.release().await.unwrap();
        keep(&locks).await;
        let asked = Instant::now();
        let guard = other.fair("k").wait(60_000 * MS).acquire().await.unwrap();
        assert!(asked.elapsed() < store.within(900 * MS), "{:?}", asked.elapsed());
        guard.release().await.unwrap();
    }

    async fn a_fair_request_is_served_while_holds_follow_one_another(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let busy = tokio::spawn(in_constant_use(locks.clone(), KEEP, MS));
        eventually("it is kept", async || locks.inspect("k").await.unwrap().kept).await;
        for _ in 0..3 {
            let asked = Instant::now();
            let guard = other.fair("k").wait(60_000 * MS).acquire().await.unwrap();
            assert!(asked.elapsed() < store.within(5_000 * MS), "{:?}", asked.elapsed());
            guard.release().await.unwrap();
        }
        busy.abort();
    }

    async fn a_lock_requested_while_in_use_is_given_back_after_the_hold(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        keep(&locks).await;
        let guard = keeper(&locks).acquire().await.unwrap();
        assert!(is_busy(other.mutex("k")).await);
        assert!(guard.is_held());
        sleep(100 * MS).await;
        guard.release().await.unwrap();
        // The message of the one who asked may still be on its way. An inspection asks nobody.
        eventually("it is given back", async || !other.inspect("k").await.unwrap().held).await;
    }

    async fn a_lock_is_kept_for_its_time_and_no_longer(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let request = locks.mutex("k").keep_for(600 * MS);
        let guard = request.acquire().await.unwrap();
        let released = Instant::now();
        guard.release().await.unwrap();
        eventually("it is given back", async || !other.inspect("k").await.unwrap().held).await;
        assert!(released.elapsed() > 500 * MS, "{:?}", released.elapsed());
    }

    async fn a_kept_lock_is_renewed(store: &mut Store) {
        let locks = store.manager().await;
        let lease = store.renewing(1_000 * MS);
        let request = locks.mutex("k").lease(lease).keep_for(KEEP);
        request.clone().acquire().await.unwrap().release().await.unwrap();
        store.until_renewed(lease, async || left_of(&locks, "k").await).await;
        assert!(locks.inspect("k").await.unwrap().kept);
        let guard = request.acquire().await.unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }

    async fn a_kept_lock_that_is_released_by_force_is_another_processs(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        keep(&locks).await;
        assert!(other.force_release("k").await.unwrap());
        let theirs = other.mutex("k").try_acquire().await.unwrap().expect("free");
        eventually("the keeper hears of it", async || is_busy(keeper(&locks)).await).await;
        assert!(theirs.is_held());
        theirs.release().await.unwrap();
        // If the lock is in use, its holder is told.
        keep(&locks).await;
        let guard = keeper(&locks).acquire().await.unwrap();
        assert!(other.force_release("k").await.unwrap());
        assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
        drop(guard);
    }

    async fn a_shutdown_gives_back_what_is_kept(store: &mut Store) {
        let other = store.manager().await;
        // A shutdown waits for two seconds at most, and a machine that stands still may need longer.
        in_one_of_a_few_rounds(Duration::ZERO, "it is given back", async || {
            let locks = store.manager().await;
            keep(&locks).await;
            let in_time = shut_down(&locks).await;
            let is_left = other.inspect("k").await.unwrap().held;
            if is_left {
                assert!(!in_time, "it is still kept");
                other.force_release("k").await.unwrap();
            }
            !is_left
        }).await;
    }

    async fn the_end_of_the_last_manager_gives_back_what_is_kept(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        keep(&locks).await;
        drop(locks);
        eventually("it is free", async || !other.inspect("k").await.unwrap().held).await;
    }

    async fn the_numbers_of_a_fenced_lock_rise(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let request = || locks.fenced("k").keep_for(KEEP);
        let mut last = None;
        for _ in 0..250 {
            let guard = request().acquire().await.unwrap();
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().await.unwrap();
        }
        let guard = given_up(other.fenced("k")).await;
        assert!(guard.fencing_token() > last);
        assert!(guard.fencing_token().unwrap().get() < 600, "gaps are small");
        guard.release().await.unwrap();
    }

    async fn two_processes_that_keep_it_never_hold_it_together(store: &mut Store) {
        let history = Arc::new(History::new());
        let managers = [store.manager().await, store.manager().await];
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..8_usize {
            tasks.spawn(contender(managers[task % 2].clone(), task, history.clone()));
        }
        let lost: usize = tasks.join_all().await.into_iter().sum();
        assert!(history.len() >= 8 * 20);
        assert!(lost <= 8, "{lost} of {}", history.len());
        history.assert_exclusive();
    }
}

/// Takes the lock again and again for one caller, with a pause after each hold in which this process does not use it.
async fn in_constant_use(locks: LockManager, keep_for: Duration, pause: Duration) {
    loop {
        let request = locks.mutex("k").keep_for(keep_for).wait(60_000 * MS);
        let guard = request.acquire().await.unwrap();
        sleep(MS).await;
        guard.release().await.unwrap();
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

/// Has the lock 20 times: in a row while nobody else asks, and after others. Returns how many of the holds were lost.
async fn contender(locks: LockManager, task: usize, history: Arc<History>) -> usize {
    let (mut had, mut lost) = (0, 0);
    for round in 0_usize.. {
        let request = locks.mutex("k").keep_for(50 * MS).wait(60_000 * MS);
        let guard = if (round + task).is_multiple_of(3) {
            match request.try_acquire().await.unwrap() {
                TryAcquire::Acquired(guard) => guard,
                TryAcquire::Busy { .. } => {
                    sleep(MS).await;
                    continue;
                }
            }
        } else {
            request.acquire().await.unwrap()
        };
        let token = guard.fencing_token().map(|token| token.get());
        let mut hold = history.begin("k", task, token);
        tokio::task::yield_now().await;
        hold.seen(|| guard.is_held());
        hold.end_as_seen();
        if round.is_multiple_of(5) {
            drop(guard);
        } else {
            lost += usize::from(!given_back(guard).await);
        }
        had += 1;
        if had == 20 {
            return lost;
        }
        if round.is_multiple_of(7) {
            sleep(MS * u32::try_from(task).unwrap()).await;
        }
    }
    unreachable!("it returns")
}

#[tokio::test]
async fn a_kept_lock_costs_no_request() {
    let server = RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    keep(&locks).await;
    // The manager sends its record beside the first hold. It must not be among the commands counted below.
    eventually("the manager has said who it is", async || {
        server.records().len() == 1
    })
    .await;
    let before = CommandStats::of(&server);
    for _ in 0..100 {
        keeper(&locks)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        sleep(MS).await;
    }
    assert_eq!(CommandStats::of(&server).since(&before).scripts(), 0);
}

/// The script that Redisson's `tryLock` sends.
const REDISSON: &str = "if (redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
     redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
     return redis.call('pttl', KEYS[1]);";

fn redisson_has(server: &RedisServer) -> bool {
    let holder = "0a1b2c3d-0000-4000-9000-000000000000:33";
    let left: Option<i64> = server.query(&["EVAL", REDISSON, "1", "lock:k", "30000", holder]);
    left.is_none()
}

#[tokio::test]
async fn a_redisson_client_that_only_tries_is_served_after_keep_for() {
    let server = RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    let request = || locks.mutex("k").keep_for(6_000 * MS);
    let mut released = Instant::now();
    for _ in 0..30 {
        let guard = request().acquire().await.unwrap();
        released = Instant::now();
        guard.release().await.unwrap();
        assert!(!redisson_has(&server));
        sleep(5 * MS).await;
    }
    eventually("it is Redisson's", async || redisson_has(&server)).await;
    assert!(released.elapsed() > 5_900 * MS, "{:?}", released.elapsed());
    assert!(is_busy(request()).await);
}

#[tokio::test]
async fn a_listening_redisson_client_is_served_among_constant_holds() {
    let server = RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    let request = || locks.mutex("k").keep_for(300 * MS);
    request().acquire().await.unwrap().release().await.unwrap();
    // A waiter of Redisson listens to this channel. Here a connection that does nothing else stands for it.
    let client = redis::Client::open(server.url()).unwrap();
    let mut listener = client.get_connection().unwrap();
    let mut listener = listener.as_pubsub();
    listener
        .subscribe("redisson_lock__channel:{lock:k}")
        .unwrap();
    eventually("it is free for a moment", async || {
        if let TryAcquire::Acquired(guard) = request().try_acquire().await.unwrap() {
            guard.release().await.unwrap();
        }
        redisson_has(&server)
    })
    .await;
}

#[tokio::test]
async fn a_polling_client_is_served_among_constant_holds() {
    let server = RedisServer::start();
    for fencing in [true, false] {
        let builder = tests::builder().fencing(fencing);
        let locks = builder.connect(&server.url()).await.unwrap();
        let busy = tokio::spawn(in_constant_use(locks.clone(), 500 * MS, Duration::ZERO));
        eventually("it is kept", async || {
            locks.inspect("k").await.unwrap().kept
        })
        .await;
        // Now and then it is free for a few milliseconds, and asked for in every twentieth.
        let within = Duration::from_secs(60);
        eventually_within(within, "it is free for a moment", async || {
            redisson_has(&server)
        })
        .await;
        busy.abort();
        assert!(locks.force_release("k").await.unwrap());
    }
}

#[tokio::test]
async fn a_set_with_another_busy_lock_leaves_a_kept_lock_in_place() {
    let server = RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    let other = tests::builder().connect(&server.url()).await.unwrap();
    keep(&locks).await;
    let busy = locks.mutex("l").acquire().await.unwrap();
    for _ in 0..20 {
        let set = other.multi(["k", "l"].map(|name| other.mutex(name)));
        let tried = set.try_acquire().await.unwrap();
        assert!(matches!(tried, TryAcquire::Busy { .. }));
        sleep(MS).await;
        assert!(locks.inspect("k").await.unwrap().kept);
    }
    busy.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_wait_for_a_kept_lock_in_use_a_few_ask_for_it() {
    const WAITING: usize = 200;
    const QUESTIONS: u64 = 1_000;
    let server = RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    keep(&locks).await;
    let guard = keeper(&locks).acquire().await.unwrap();
    // Each connection stands for a process that waits: it listens to the lock's channel.
    let client = redis::Client::open(server.url()).unwrap();
    let mut listeners: Vec<_> = (0..WAITING)
        .map(|_| client.get_connection().unwrap())
        .collect();
    for listener in &mut listeners {
        let mut subscribe = redis::cmd("SUBSCRIBE");
        let subscribe = subscribe.arg("redisson_lock__channel:{lock:k}");
        subscribe.exec(listener).unwrap();
    }
    let other = tests::builder().connect(&server.url()).await.unwrap();
    let asked = |stats: &CommandStats| stats.calls("publish");
    let before = CommandStats::of(&server);
    for _ in 0..QUESTIONS {
        assert!(is_busy(other.mutex("k")).await);
    }
    let asked = asked(&CommandStats::of(&server).since(&before));
    // With 200 listeners, only 8 in 200 tries ask the keeper.
    assert!((5..=120).contains(&asked), "{asked} of {QUESTIONS} asked");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(!other.inspect("k").await.unwrap().held, "it was asked for");
}

#[tokio::test]
async fn stores_that_tell_no_keeper_refuse_it() {
    let server = RedisServer::start();
    let confirmed = tests::builder().replicas(Replicas::majority());
    let quorum = Store::quorum();
    let postgres = Store::postgres();
    for locks in [
        confirmed.connect(&server.url()).await.unwrap(),
        quorum.manager().await,
        postgres.manager().await,
    ] {
        let refused = keeper(&locks).acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::InvalidConfig { .. }));
        assert!(refused.to_string().contains("keep_for"), "{refused}");
    }
}
