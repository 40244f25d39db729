//! Tests of `kill -9` of a Rust process while Java waits behind it: its lease, or the date of its place in a queue,
//! bounds the wait. The processes use the default namespace.

use std::time::{Duration, Instant};

use tests::{Worker, eventually};

use crate::pair::{LASTING, LONG, PUSHED, Pair, with_the_lease};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const HOLDER: &str = env!("CARGO_BIN_EXE_holder");
const QUEUE: &str = "redisson_lock_queue:{lock:k}";
const PLACES: &str = "redisson_lock_timeout:{lock:k}";

/// Starts a process that has the lock of this key, and renews it.
fn holding(pair: &Pair, mode: &str, key: &str) -> Worker {
    let lease = LASTING.as_millis().to_string();
    let worker = Worker::start(WORKER, &[mode, &pair.server.url(), key, &lease]);
    assert!(worker.line().unwrap().starts_with("held "));
    worker
}

fn lease_left(pair: &Pair, name: &str) -> Duration {
    Duration::from_millis(pair.server.pttl(name).unsigned_abs())
}

async fn queued(pair: &Pair, so_many: u64) {
    eventually("they are in the queue", async || {
        pair.server.query::<u64>(&["LLEN", QUEUE]) == so_many
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_has_the_lock_when_a_killed_rust_processs_lease_is_over() {
    let pair = Pair::start().await;
    // Each has a lock of its own, so that their leases end side by side.
    let mut held = Vec::new();
    for (ours, javas, key, name) in [
        ("hang", "mutex", "a", "lock:a"),
        ("hang-read", "write", "b", "lock:b"),
        ("hang-write", "write", "c", "lock:c"),
        ("hang-write", "read", "d", "lock:d"),
    ] {
        let worker = holding(&pair, ours, key);
        let java = pair.java.lock_of(javas, name);
        let waiting = pair.asleep(|| java.begin(LONG, key)).await;
        held.push((worker, java, waiting, key, name));
    }
    let mut ending = Vec::new();
    for (mut worker, java, waiting, key, name) in held {
        worker.kill9();
        let (since, left) = (Instant::now(), lease_left(&pair, name));
        let over = tokio::spawn(async move {
            assert_eq!(waiting.await.unwrap(), "true", "{name}");
            with_the_lease(since, left);
        });
        ending.push((over, java, key, name));
    }
    for (over, java, key, name) in ending {
        over.await.unwrap();
        java.unlock(key).await;
        assert!(!pair.server.exists(name), "{name}");
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_enter_once_a_killed_rust_and_a_java_reader_are_over() {
    let pair = Pair::start().await;
    let mut worker = holding(&pair, "hang-read", "k");
    let (read, write) = (
        pair.java.lock_of("read", "lock:k"),
        pair.java.lock_of("write", "lock:k"),
    );
    read.lock_for(LONG, "a").await;
    worker.kill9();
    let entries = || {
        pair.server
            .query::<Vec<String>>(&["KEYS", "*:rwlock_timeout:1"])
    };
    eventually("our reader's entry is over", async || entries().len() == 1).await;
    assert!(!write.try_lock("b").await, "Java reads");
    read.unlock("a").await;
    assert!(write.try_lock("b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_gets_the_fair_lock_after_the_lease_of_a_killed_holder() {
    let pair = Pair::start().await;
    let mut worker = holding(&pair, "hang-fair", "k");
    let java = pair.java.lock_of("fair", "lock:k");
    let waiting = java.begin(LONG, "a");
    queued(&pair, 1).await;
    let next = tokio::spawn(pair.rust.fair("lock:k").wait(LONG).acquire());
    queued(&pair, 2).await;
    worker.kill9();
    let (since, left) = (Instant::now(), lease_left(&pair, "lock:k"));
    assert_eq!(waiting.await.unwrap(), "true");
    with_the_lease(since, left);
    java.unlock("a").await;
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_rust_waiter_delays_java_until_its_place_ends() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "lock:k");
    java.lock("holder").await;
    let mut doomed = Worker::start(WORKER, &["line", &pair.server.url(), "k", "1"]);
    queued(&pair, 1).await;
    // Frozen right after it has dated its place anew, the doomed process does not date it once more.
    let dated = || {
        pair.server
            .query::<Vec<String>>(&["ZRANGE", PLACES, "0", "0", "WITHSCORES"])
    };
    let before = dated();
    eventually("the place is dated anew", async || dated() != before).await;
    doomed.freeze();
    // The server has done what it had been sent before, when it answers.
    let [_, until]: [String; 2] = dated().try_into().expect("one place");
    doomed.kill9();
    // Java comes when the lock is free. Behind a lock that is held, it would ask again only after the holder's lease: the
    // message of the release goes to the dead one.
    java.unlock("holder").await;
    // A waiter of ours keeps its place for 5 s without asking.
    let until: u64 = until.parse().expect("a time in ms");
    let since = Instant::now();
    let left = until.saturating_sub(pair.server.time_ms());
    assert_eq!(java.begin(PUSHED, "a").await.unwrap(), "true");
    with_the_lease(since, Duration::from_millis(left));
    java.unlock("a").await;
    assert!(!pair.server.exists(QUEUE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_gets_the_permits_after_the_lease_of_a_killed_process() {
    let pair = Pair::start().await;
    let pool = pair.rust.semaphore("lock:s");
    pool.try_set_permits(2).await.unwrap();
    let lease = LASTING.as_millis().to_string();
    let args = ["permits", &pair.server.url(), "s", "2", &lease];
    let mut holder = Worker::start(HOLDER, &args);
    holder.expect_line("held");
    let wait = format!("permits-acquire lock:s {} 60000", LONG.as_millis());
    let waiting = pair.refused_twice("zrange", || pair.java.tell(&wait)).await;
    holder.kill9();
    let since = Instant::now();
    let leases = ["ZRANGE", "{lock:s}:timeout", "0", "0", "WITHSCORES"];
    let leases: Vec<(Vec<u8>, u64)> = pair.server.query(&leases);
    let left = leases[0].1.saturating_sub(pair.server.time_ms());
    assert_ne!(waiting.await.unwrap(), "null");
    with_the_lease(since, Duration::from_millis(left));
    assert_eq!(pool.available().await.unwrap(), 1, "the other one, too");
    assert_eq!(pair.java.complaints(), "");
}
