//! Tests of read/write locks whose holders are killed, whose futures are dropped at each of their polls, or whose
//! scripts and connections go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockRequest, LostReason, TryAcquire};
use redis::Value;
use tests::eventually::PATIENCE;
use tests::faults::{LEAVES, at_each_poll, behind_a_proxy, connected, poll_times, told};
use tests::{Direction, FaultProxy, History, RedisServer, Worker, eventually, eventually_within};
use tokio::task::JoinSet;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(60 * 60);

struct Scene {
    server: RedisServer,
    _proxy: FaultProxy,
    slow: LockManager,
    other: LockManager,
}

impl Scene {
    async fn new() -> Scene {
        let server = RedisServer::start();
        // Nothing becomes free by the end of a lease.
        let builder = tests::builder().lease(HOUR);
        let (proxy, slow) = behind_a_proxy(&server, builder.clone()).await;
        let other = connected(builder, &server.url()).await;
        for locks in [&slow, &other] {
            take(locks.write("warm")).await;
            take(locks.read("warm")).await;
        }
        proxy.delay(Direction::Requests, 2 * MS);
        proxy.delay(Direction::Replies, 2 * MS);
        Scene {
            server,
            _proxy: proxy,
            slow,
            other,
        }
    }

    /// Asserts that another manager may write long before a lease is over, and that no orphan comes up after it.
    async fn assert_free(&self, what: &str) {
        let writer = self.other.write("k").wait(PATIENCE).acquire().await;
        let writer = writer.unwrap_or_else(|error| panic!("{what}: {error}"));
        writer.release().await.unwrap();
        eventually(what, async || self.server.stray_keys().is_empty()).await;
        let info = self.slow.inspect("k").await.unwrap();
        assert_eq!(info.local_waiters, 0, "{what}: a queue entry is left");
    }

    async fn end(self) {
        drop((self.slow, self.other));
        self.server.assert_deserted().await;
    }
}

async fn take(request: LockRequest) {
    let guard = request.wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn hangs(server: &RedisServer, kind: &str, lease: &str) -> Worker {
    let worker = Worker::start(
        WORKER,
        &[&format!("hang-{kind}"), &server.url(), "k", lease],
    );
    let line = worker.line().expect("the holder holds");
    assert!(line.starts_with("held "), "{line}");
    worker
}

#[tokio::test]
async fn acquires_dropped_at_any_poll_leave_the_lock_free() {
    let scene = Scene::new().await;
    for request in [scene.slow.read("k"), scene.slow.write("k")] {
        at_each_poll(async |polls, leave| {
            let guard = poll_times(request.clone().acquire(), polls, leave).await;
            let completed = guard.is_some();
            drop(guard.map(Result::unwrap));
            scene
                .assert_free(&format!("{polls} polls, {leave:?}"))
                .await;
            completed
        })
        .await;
        at_each_poll(async |polls, leave| {
            let tried = poll_times(request.clone().try_acquire(), polls, leave).await;
            let completed = tried.is_some();
            drop(tried.map(|tried| tried.unwrap().expect("it is free")));
            scene
                .assert_free(&format!("try: {polls} polls, {leave:?}"))
                .await;
            completed
        })
        .await;
    }
    scene.end().await;
}

#[tokio::test]
async fn waiters_dropped_at_any_poll_leave_the_queue_and_the_lock() {
    let scene = Scene::new().await;
    for (holds, waits) in [
        (scene.other.write("k"), scene.slow.read("k")),
        (scene.other.read("k"), scene.slow.write("k")),
    ] {
        at_each_poll(async |polls, leave| {
            let holder = holds.clone().acquire().await.unwrap();
            // The lock is released while the waiter is somewhere on its way: it has asked, or subscribed, or sleeps.
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(25 * MS).await;
                holder.release().await.unwrap();
            });
            let guard = poll_times(waits.clone().wait(LONG).acquire(), polls, leave).await;
            let completed = guard.is_some();
            drop(guard.map(Result::unwrap));
            releasing.await.unwrap();
            scene
                .assert_free(&format!("{polls} polls, {leave:?}"))
                .await;
            completed
        })
        .await;
    }
    scene.end().await;
}

#[tokio::test]
async fn releases_and_downgrades_dropped_at_any_poll_go_on() {
    let scene = Scene::new().await;
    for request in [scene.slow.read("k"), scene.slow.write("k")] {
        at_each_poll(async |polls, leave| {
            let guard = request.clone().acquire().await.unwrap();
            let released = poll_times(guard.release(), polls, leave).await;
            scene
                .assert_free(&format!("{polls} polls, {leave:?}"))
                .await;
            released.map(Result::unwrap).is_some()
        })
        .await;
    }
    at_each_poll(async |polls, leave| {
        let write = scene.slow.write("k").acquire().await.unwrap();
        let read = write.scope(async { scene.slow.read("k").acquire().await });
        let read = read.await.unwrap();
        let released = poll_times(write.release(), polls, leave).await;
        if fastrand::bool() {
            let beside = scene.other.read("k").wait(PATIENCE).acquire().await;
            beside.expect("others may read").release().await.unwrap();
            assert!(read.is_held());
        }
        // Otherwise the release follows at once, and may overtake the downgrade.
        read.release().await.unwrap();
        scene
            .assert_free(&format!("downgrade: {polls} polls, {leave:?}"))
            .await;
        released.map(Result::unwrap).is_some()
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_late_answer_to_a_downgrade_tells_the_first_loss() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, told().call_timeout(LONG)).await;
    let other = connected(told(), &server.url()).await;
    let request = locks.write("k").lease(1_000 * MS).auto_renew(false);
    let mut guard = request.acquire().await.unwrap();
    proxy.stall(Direction::Requests, true);
    let downgrading = tokio::spawn(guard.downgrade());
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    eventually("the store has ended the lease", async || {
        !other.inspect("k").await.unwrap().held
    })
    .await;
    // Only now the store says that it knows no such hold.
    proxy.stall(Direction::Requests, false);
    let error = downgrading.await.unwrap().unwrap_err();
    let is_first = matches!(
        &error,
        LockError::Lost {
            reason: LostReason::Expired,
            ..
        }
    );
    assert!(is_first, "{error:?}");
}

#[tokio::test]
async fn a_killed_reader_keeps_a_writer_out_only_until_its_lease_ends() {
    let server = RedisServer::start();
    let locks = connected(told(), &server.url()).await;
    let mut reader = hangs(&server, "read", "1500").await;
    // This reader lives on, and keeps the hash alive.
    let long = locks.read("k").lease(20 * LONG).acquire().await.unwrap();
    let writing = tokio::spawn(locks.write("k").wait(LONG).acquire());
    reader.kill9();
    eventually("the dead reader is not counted", async || {
        locks.inspect("k").await.unwrap().readers == 1
    })
    .await;
    assert!(server.pttl("lock:k") > 60_000, "the hash outlives it");
    assert!(!writing.is_finished() && long.is_held());
    long.release().await.unwrap();
    writing.await.unwrap().unwrap().release().await.unwrap();
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn killed_holders_block_for_their_lease_and_no_longer() {
    let server = RedisServer::start();
    // The end of the lease is all that wakes a waiter.
    let locks = connected(told(), &server.url()).await;
    for (kind, request) in [
        ("read", locks.write("k")),
        ("write", locks.write("k")),
        ("write", locks.read("k")),
    ] {
        let mut holder = hangs(&server, kind, "1200").await;
        let waiting = tokio::spawn(request.wait(LONG).acquire());
        holder.kill9();
        let guard = waiting.await.unwrap();
        let guard = guard.unwrap_or_else(|error| panic!("{kind}: {error}"));
        guard.release().await.unwrap();
    }
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_writer_killed_in_its_wait_keeps_readers_out_for_a_moment() {
    let server = RedisServer::start();
    // The end of the writer's mark is all that wakes a reader.
    let locks = connected(told(), &server.url()).await;
    let reader = locks.read("k").acquire().await.unwrap();
    let mut writer = Worker::start(WORKER, &["hang-write", &server.url(), "k", "30000"]);
    eventually("the writer waits, and keeps others out", async || {
        let tried = locks.read("k").try_acquire().await;
        matches!(tried, Ok(TryAcquire::Busy { .. }))
    })
    .await;
    writer.kill9();
    // It is -2 if the mark is gone already.
    let left = server.pttl("lock:rw:waiting:{lock:k}");
    assert!(left == -2 || (0..=1_500).contains(&left), "{left}");
    let second = locks.read("k").wait(LONG).acquire().await.unwrap();
    reader.release().await.unwrap();
    second.release().await.unwrap();
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_scripts_and_connections_let_no_reader_overlap_a_writer() {
    let server = Arc::new(RedisServer::start());
    let history = Arc::new(History::new());
    let (reads, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut managers = Vec::new();
    for _ in 0..3 {
        managers.push(tests::connected(&server.url()).await);
    }
    let mut tasks = JoinSet::new();
    for number in 0..18_usize {
        let (locks, history) = (managers[number % 3].clone(), history.clone());
        let (reads, stop) = (reads.clone(), stop.clone());
        tasks.spawn(async move {
            let holder = format!("t{number}");
            while !stop.load(SeqCst) {
                let writes = fastrand::u8(..4) == 0;
                let request = if writes {
                    locks.write("k")
                } else {
                    locks.read("k")
                };
                let request = request.lease(1_000 * MS).wait(LONG);
                let guard = if fastrand::u8(..10) == 0 {
                    let leave = LEAVES[fastrand::usize(..2)];
                    poll_times(request.acquire(), fastrand::usize(..6), leave).await
                } else {
                    Some(request.acquire().await)
                };
                let guard: LockGuard = match guard {
                    Some(Ok(guard)) => guard,
                    None | Some(Err(LockError::Unavailable { .. } | LockError::Busy { .. })) => {
                        continue;
                    }
                    Some(Err(error)) => panic!("{holder}: {error}"),
                };
                // Each reader has a key of its own, so that it is checked against the writers alone.
                let token = guard.fencing_token().map(|token| token.get());
                let key = if writes {
                    "k".to_owned()
                } else {
                    format!("k as read by {holder}")
                };
                let mut hold = history.begin(&key, &holder, token);
                for _ in 0..fastrand::u8(..4) {
                    tokio::task::yield_now().await;
                    if !hold.seen(|| guard.is_held()) {
                        break;
                    }
                }
                hold.seen(|| guard.is_held());
                hold.end_as_seen();
                if !writes {
                    reads.fetch_add(1, SeqCst);
                }
                if fastrand::bool() {
                    drop(guard);
                } else {
                    let _ = guard.release().await;
                }
            }
        });
    }
    for round in 0..60 {
        tokio::time::sleep(MS * fastrand::u32(30..60)).await;
        let _: Value = server.query(&["SCRIPT", "FLUSH"]);
        if round % 30 == 29 {
            server.cut_clients();
        }
    }
    eventually_within(2 * LONG, "enough of both", async || {
        reads.load(SeqCst) > 500 && history.len() - reads.load(SeqCst) > 100
    })
    .await;
    stop.store(true, SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    history.assert_exclusive();
    let holds = history.holds();
    let (writers, readers): (Vec<_>, Vec<_>) = holds.iter().partition(|hold| hold.key == "k");
    for reader in &readers {
        for writer in &writers {
            let beside = reader.from < writer.until && writer.from < reader.until;
            assert!(!beside, "a reader beside a writer:\n  {reader}\n  {writer}");
        }
    }
    drop(managers);
    server.assert_deserted().await;
}
