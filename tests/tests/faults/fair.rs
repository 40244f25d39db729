//! Tests of fair locks among processes: strict order, waiters and holders that are killed, questions whose answers are
//! lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::faults::{Op, asleep, behind_a_proxy, kept_in_order};
use tests::{RedisServer, Then, Worker, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(120);
const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const QUEUE: &str = "redisson_lock_queue:{lock:hot}";
/// When each place of the queue is deserted, by the server's clock, unless its waiter asks again.
const TIMEOUTS: &str = "redisson_lock_timeout:{lock:hot}";
/// A waiter with others before it asks this often at most.
const HEARTBEAT: Duration = Duration::from_millis(1_280);

fn list(server: &RedisServer, key: &str) -> Vec<String> {
    server.query(&["LRANGE", key, "0", "-1"])
}

fn in_line(server: &RedisServer, tasks: usize) -> Worker {
    Worker::start(WORKER, &["line", &server.url(), "hot", &tasks.to_string()])
}

async fn queued(server: &RedisServer, count: usize) {
    let all = async || list(server, QUEUE).len() == count;
    eventually_within(LONG, "they queue", all).await;
}

#[tokio::test]
async fn waiters_of_eight_processes_are_served_in_strict_order() {
    kept_in_order(Duration::from_secs(5), async || {
        let server = RedisServer::start();
        let locks = tests::connected(&server.url()).await;
        let holder = locks.fair("hot").acquire().await.unwrap();
        let workers: Vec<_> = (0..8).map(|_| in_line(&server, 50)).collect();
        queued(&server, 400).await;
        let order = list(&server, QUEUE);
        holder.release().await.unwrap();
        for worker in workers {
            worker.expect_line("done");
        }
        let served = list(&server, "served");
        assert_eq!(served.len(), 400);
        let _: i64 = server.query(&["DEL", "served"]);
        drop(locks);
        server.assert_deserted().await;
        served == order
    })
    .await;
}

#[tokio::test]
async fn any_number_of_killed_waiters_delays_the_next_by_bounded_time() {
    for tasks in [1, 40] {
        // A round ends early if the worker has lost its places before it is killed. Nothing sleeps until then.
        kept_in_order(Duration::ZERO, async || {
            let server = RedisServer::start();
            let locks = tests::connected(&server.url()).await;
            let holder = locks.fair("hot").acquire().await.unwrap();
            let mut dead = in_line(&server, tasks);
            queued(&server, tasks).await;
            let order = list(&server, QUEUE);
            let next = tokio::spawn(locks.fair("hot").wait(LONG).acquire());
            queued(&server, tasks + 1).await;
            if !list(&server, QUEUE).starts_with(&order) {
                next.abort();
                return false;
            }
            dead.kill9();
            let killed = Instant::now();
            let ends: BTreeMap<String, u64> =
                server.query(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"]);
            let end = order.iter().filter_map(|place| ends.get(place)).max();
            holder.release().await.unwrap();
            let guard = next.await.unwrap().unwrap();
            let now = server.time_ms();
            assert!(
                Some(&now) >= end,
                "a place lives on for a while: {now} {end:?}"
            );
            // Dead places that were waited for one after the other would take as many times five seconds.
            assert!(
                killed.elapsed() < LONG,
                "{tasks} dead: {:?}",
                killed.elapsed()
            );
            guard.release().await.unwrap();
            drop(locks);
            server.assert_deserted().await;
            true
        })
        .await;
    }
}

#[tokio::test]
async fn a_killed_holder_blocks_the_waiters_until_its_lease_is_over() {
    kept_in_order(Duration::from_secs(9), async || {
        let server = RedisServer::start();
        let locks = tests::connected(&server.url()).await;
        let mut dead = Worker::start(WORKER, &["hang-fair", &server.url(), "hot", "9000"]);
        assert!(dead.line().unwrap().starts_with("held "));
        let mut first = tokio::spawn(locks.fair("hot").wait(LONG).acquire());
        queued(&server, 1).await;
        let mut second = tokio::spawn(locks.fair("hot").wait(LONG).acquire());
        queued(&server, 2).await;
        dead.kill9();
        let killed = Instant::now();
        let end = server.query::<u64>(&["PEXPIRETIME", "lock:hot"]);
        let (guard, is_first) = tokio::select! {
            biased;
            guard = &mut first => (guard, true),
            guard = &mut second => (guard, false),
        };
        assert!(server.time_ms() >= end);
        assert!(killed.elapsed() < LONG, "{:?}", killed.elapsed());
        let next = if is_first { second } else { first };
        assert!(!next.is_finished());
        guard.unwrap().unwrap().release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        drop(locks);
        server.assert_deserted().await;
        is_first
    })
    .await;
}

#[tokio::test]
async fn a_request_with_a_lost_answer_keeps_its_place_and_takes_once() {
    let mut lost = vec![Then::Cut, Then::Silence];
    for _ in 0..20 {
        let Some(then) = lost.last().copied() else {
            return;
        };
        let server = RedisServer::start();
        let (proxy, slow) = behind_a_proxy(&server, tests::builder()).await;
        let locks = tests::connected(&server.url()).await;
        let holder = locks.fair("hot").acquire().await.unwrap();
        let first = asleep(&proxy, slow.fair("hot").wait(LONG).acquire()).await;
        queued(&server, 1).await;
        let behind = tokio::spawn(locks.fair("hot").wait(LONG).acquire());
        queued(&server, 2).await;
        let order = list(&server, QUEUE);
        // The next question of the first waiter is granted, and nobody hears of it.
        Op::FairAcquire.lose_reply(&proxy, then);
        holder.release().await.unwrap();
        let mut holders = Vec::new();
        eventually("it is granted", async || {
            holders = server.query::<Vec<String>>(&["HKEYS", "lock:hot"]);
            !holders.is_empty()
        })
        .await;
        if holders != order[..1] {
            // The question that was lost came before the release, and so the place was lost in time.
            continue;
        }
        let guard = first.await.unwrap().unwrap();
        assert!(!behind.is_finished());
        guard.release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
        eventually("nothing is left", async || server.stray_keys().is_empty()).await;
        drop((locks, slow));
        lost.pop();
    }
    panic!("the first waiter was not granted the lock");
}

/// After a cut, the waiter is another holder: a copy of its process may have the id that it had before.
#[tokio::test]
async fn a_waiter_keeps_its_place_after_a_cut_under_another_holder_id() {
    kept_in_order(Duration::from_secs(2), async || {
        let server = RedisServer::start();
        let (proxy, cut) = behind_a_proxy(&server, tests::builder()).await;
        let locks = tests::connected(&server.url()).await;
        let holder = locks.fair("hot").acquire().await.unwrap();
        let mut first = asleep(&proxy, cut.fair("hot").wait(LONG).acquire()).await;
        queued(&server, 1).await;
        let mut behind = tokio::spawn(locks.fair("hot").wait(LONG).acquire());
        queued(&server, 2).await;
        let order = list(&server, QUEUE);
        proxy.cut();
        // Its next heartbeat goes out on the new connection.
        let asked = proxy.count("EVALSHA");
        let again = async || proxy.count("EVALSHA") > asked;
        eventually_within(LONG, "it asks on another connection", again).await;
        let is_kept = list(&server, QUEUE) == order;
        holder.release().await.unwrap();
        let (guard, is_first) = tokio::select! {
            biased;
            guard = &mut first => (guard, true),
            guard = &mut behind => (guard, false),
        };
        let next = if is_first { behind } else { first };
        assert!(!next.is_finished());
        let holders: Vec<String> = server.query(&["HKEYS", "lock:hot"]);
        assert!(holders.len() == 1 && holders[0] != order[0], "{holders:?}");
        guard.unwrap().unwrap().release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        eventually("nothing is left", async || server.stray_keys().is_empty()).await;
        is_kept && is_first
    })
    .await;
}

#[tokio::test]
async fn waiters_that_sleep_cost_a_heartbeat_each_and_no_busy_loop() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let holder = locks.mutex("hot").acquire().await.unwrap();
    let mut dead = in_line(&server, 1);
    queued(&server, 1).await;
    let waiters: Vec<_> = (0..10)
        .map(|_| tokio::spawn(locks.fair("hot").wait(LONG).acquire()))
        .collect();
    queued(&server, 11).await;
    dead.kill9();
    // The lock is free and the head of its queue is dead: the others wait, but they do not spin.
    holder.release().await.unwrap();
    let since = Instant::now();
    let before = tests::CommandStats::of(&server);
    let asked = || tests::CommandStats::of(&server).since(&before).scripts();
    eventually("half of them have asked", async || asked() >= 5).await;
    tokio::time::sleep(1_600 * MS).await;
    let asked = asked();
    let heartbeats = 1 + since.elapsed().as_millis() / HEARTBEAT.as_millis();
    // Once the dead place is deserted, the next waiter gets the lock.
    assert!(u128::from(asked) <= 10 * heartbeats + 10, "{asked}");
    for waiter in &waiters {
        waiter.abort();
    }
    eventually("all have left", async || list(&server, QUEUE).len() <= 1).await;
}
