//! Tests of `min_hold`: the store keeps the key for that time, even if the process that asked for it has ended, and no
//! matter which sharer of the hold leaves last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, TryAcquire, distributed_lock};
use tests::{RedisServer, Store, eventually};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const LEAST: Duration = Duration::from_secs(3);
const KEY: &str = "lock:tick";

#[distributed_lock(key = "tick", manager = locks, on_busy = skip, lease = "1s", min_hold = LEAST)]
async fn tick(locks: &LockManager) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

/// Returns the time from `since` until the key can be taken again. Checks first that it is taken.
async fn taken_for(server: &RedisServer, since: Instant) -> Duration {
    let other = LockManager::connect(&server.url()).await.unwrap();
    assert_eq!(
        tick(&other).await.unwrap(),
        None,
        "a second run in the same tick"
    );
    let guard = other.mutex("tick").acquire().await.unwrap();
    let taken = since.elapsed();
    guard.release().await.unwrap();
    taken
}

#[tokio::test]
async fn the_key_stays_taken_after_the_body_ended() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let before = Instant::now();
    tick(&locks).await.unwrap().expect("the first run");
    assert!(before.elapsed() < LEAST, "the call does not wait for it");
    let taken = taken_for(&server, before).await;
    assert!(taken >= LEAST, "{taken:?}");
    assert!(
        taken < 2 * LEAST,
        "given back when the time is over: {taken:?}"
    );
}

#[tokio::test]
async fn the_key_stays_taken_when_the_process_ends_after_the_call() {
    let server = RedisServer::start();
    let url = server.url();
    let before = Instant::now();
    // Guards, manager and runtime end together. Only what the server was told is left.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let locks = LockManager::connect(&url).await.unwrap();
            tick(&locks).await.unwrap().expect("the first run");
        });
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    eventually("the process is gone", async || server.clients().is_empty()).await;
    assert!(server.pttl(KEY) > 1_000, "longer than its lease");
    let taken = taken_for(&server, before).await;
    assert!(taken >= LEAST, "{taken:?}");
    assert!(taken < 2 * LEAST, "{taken:?}");
}

#[distributed_lock(key = "tick", manager = locks, lease = "1s", min_hold = LEAST)]
async fn endless(locks: &LockManager, started: &Notify) -> Result<(), LockError> {
    started.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn the_key_stays_taken_when_the_call_and_the_manager_are_dropped() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
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
    let taken = taken_for(&server, before).await;
    assert!(taken >= LEAST, "{taken:?}");
    assert!(taken < 2 * LEAST, "{taken:?}");
}

/// Returns a task that shares the hold until `go`.
#[distributed_lock(key = "tick", manager = locks, lease = "1s", min_hold = LEAST, guard = lease)]
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
    key = "page", mode = write, manager = locks, lease = "1s", min_hold = LEAST, guard = lease
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
    async fn the_key_stays_taken_when_the_call_is_not_the_last_to_share_the_hold(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (before, go) = (tokio::time::Instant::now(), Arc::new(Notify::new()));
        let work = leaves_work(&locks, &go).await.unwrap();
        go.notify_one();
        work.await.unwrap().unwrap();
        assert_eq!(tick(&other).await.unwrap(), None, "a second run in the same tick");
        other.mutex("tick").acquire().await.unwrap().release().await.unwrap();
        let taken = before.elapsed();
        assert!(taken >= LEAST && taken < 2 * LEAST, "{taken:?}");
    }

    async fn the_key_stays_taken_for_writers_when_a_reader_outlives_the_call(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (before, go) = (tokio::time::Instant::now(), Arc::new(Notify::new()));
        let work = leaves_a_reader(&locks, &go).await.unwrap();
        go.notify_one();
        work.await.unwrap().unwrap();
        assert!(matches!(other.write("page").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        other.write("page").acquire().await.unwrap().release().await.unwrap();
        let taken = before.elapsed();
        assert!(taken >= LEAST && taken < 2 * LEAST, "{taken:?}");
    }
}
