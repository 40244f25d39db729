//! Tests of `min_hold`: the store keeps the key for that time, even if the process that asked for it has ended, and no
//! matter which sharer of the hold leaves last.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, distributed_lock};
use tests::{Events, RedisServer, Store, answered, eventually};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Level;

/// Longer than the lease of the functions below, a sixth of which is the time for an answer.
const LEAST: Duration = Duration::from_secs(15);
/// What only a hang takes.
const LONG: Duration = Duration::from_secs(60);
const KEY: &str = "lock:tick";

#[distributed_lock(key = "tick", manager = locks, on_busy = skip, lease = "12s", min_hold = least)]
async fn tick(locks: &LockManager, least: Duration) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

/// Has the first run of a tick, and returns a time just before it. On a busy machine, the answer that grants the lock may come
/// too late, and the lock is given back then.
async fn first_run(locks: &LockManager, least: Duration) -> Instant {
    let mut before = Instant::now();
    eventually("the first run", async || {
        before = Instant::now();
        match tick(locks, least).await {
            Ok(ran) => ran.is_some(),
            Err(LockError::Unavailable { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    before
}

/// Returns the time from `before` until the key can be taken again, which is not earlier than `LEAST`.
async fn taken_for(locks: &LockManager, before: Instant) -> Duration {
    let second = answered(async || tick(locks, LEAST).await).await.unwrap();
    assert!(
        second.is_none() || before.elapsed() >= LEAST,
        "a second run in the same tick"
    );
    let guard = locks.mutex("tick").wait(2 * LEAST).acquire().await.unwrap();
    let taken = before.elapsed();
    assert!(taken >= LEAST, "{taken:?}");
    guard.release().await.unwrap();
    taken
}

/// Waits until the server keeps the key until `LONG` is over since `before`, without anybody who would renew its lease, which
/// is shorter.
async fn is_kept_by(server: &RedisServer, before: Instant) {
    eventually("the server keeps it for as long as that", async || {
        let left: i64 = server.ask(&["PTTL", KEY]).await;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        left + before.elapsed() >= LONG && left < LONG + Duration::from_secs(2)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_freed_by_force_is_no_loss() {
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let locks = LockManager::in_memory();
    tick(&locks, LEAST).await.unwrap().expect("the first run");
    assert!(locks.force_release("tick").await.unwrap());
    tokio::time::sleep(2 * LEAST).await;
    let warned = events.of(Level::WARN);
    assert!(warned.is_empty(), "{warned:?}");
}

#[tokio::test]
async fn the_key_stays_taken_after_the_body_ended() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let other = tests::connected(&server.url()).await;
    let before = first_run(&locks, LEAST).await;
    taken_for(&other, before).await;
    let call = tokio::time::timeout(LONG, first_run(&locks, 10 * LONG)).await;
    call.expect("the call does not wait for the end of it");
}

#[tokio::test]
async fn the_key_stays_taken_when_the_process_ends_after_the_call() {
    let server = RedisServer::start();
    let url = server.url();
    // Guards, manager and runtime end together. Only what the server was told is left.
    let before = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let before = runtime.block_on(async {
            let locks = tests::connected(&url).await;
            first_run(&locks, LONG).await
        });
        runtime.shutdown_background();
        before
    })
    .join()
    .unwrap();
    eventually("the process is gone", async || server.clients().is_empty()).await;
    is_kept_by(&server, before).await;
}

#[distributed_lock(key = "tick", manager = locks, lease = "12s", min_hold = LONG)]
async fn endless(locks: &LockManager, started: &Notify) -> Result<(), LockError> {
    started.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn the_key_stays_taken_when_call_and_manager_are_dropped() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let started = Arc::new(Notify::new());
    let before = Instant::now();
    let call = tokio::spawn({
        let started = started.clone();
        async move { endless(&locks, &started).await }
    });
    started.notified().await;
    // The call owns the last handle to the manager, so the manager ends with it.
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    is_kept_by(&server, before).await;
}

/// Returns a task that shares the hold until `go`.
#[distributed_lock(key = "tick", manager = locks, lease = "12s", min_hold = LEAST, guard = lease)]
async fn leaves_work(
    locks: &LockManager,
    go: &Arc<Notify>,
) -> Result<JoinHandle<Result<(), LockError>>, LockError> {
    let (entered, inside) = (Arc::new(Notify::new()), locks.clone());
    let (told, go) = (entered.clone(), go.clone());
    let work = tokio::spawn(lease.scope(async move {
        let guard = inside.mutex("tick").acquire().await?;
        told.notify_one();
        go.notified().await;
        guard.release().await
    }));
    entered.notified().await;
    Ok(work)
}

/// Returns a task that reads under this write and shares its hold until `go`.
#[distributed_lock(
    key = "page", mode = write, manager = locks, lease = "12s", min_hold = LEAST, guard = lease
)]
async fn leaves_a_reader(
    locks: &LockManager,
    go: &Arc<Notify>,
) -> Result<JoinHandle<Result<(), LockError>>, LockError> {
    let (entered, inside) = (Arc::new(Notify::new()), locks.clone());
    let (told, go) = (entered.clone(), go.clone());
    let work = tokio::spawn(lease.scope(async move {
        let guard = inside.read("page").acquire().await?;
        told.notify_one();
        go.notified().await;
        guard.release().await
    }));
    entered.notified().await;
    Ok(work)
}

tests::suite! {
    async fn the_key_stays_taken_when_another_sharer_outlives_the_call(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (before, go) = (Instant::now(), Arc::new(Notify::new()));
        let work = leaves_work(&locks, &go).await.unwrap();
        go.notify_one();
        work.await.unwrap().unwrap();
        let taken = taken_for(&other, before).await;
        assert!(taken < store.within(2 * LEAST), "{taken:?}");
    }

    async fn a_reader_that_outlives_the_call_keeps_the_key_from_writers(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (before, go) = (Instant::now(), Arc::new(Notify::new()));
        let work = leaves_a_reader(&locks, &go).await.unwrap();
        go.notify_one();
        work.await.unwrap().unwrap();
        let guard = other.write("page").wait(store.within(2 * LEAST)).acquire().await.unwrap();
        let taken = before.elapsed();
        assert!(taken >= LEAST && taken < store.within(2 * LEAST), "{taken:?}");
        guard.release().await.unwrap();
    }
}
