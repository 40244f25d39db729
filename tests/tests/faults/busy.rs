//! "Busy" is an answer of the store, or of a hold of this process; never a guess.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, TryAcquire};
use tests::{RedisServer, answered, eventually};

async fn manager(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().call_timeout(Duration::from_millis(300));
    let builder = builder.lease(Duration::from_secs(60 * 60));
    // On a busy machine, an answer may take longer.
    let connected = answered(async || builder.clone().connect(&server.url()).await);
    connected.await.unwrap()
}

#[tokio::test]
async fn a_store_that_is_away_is_never_busy_for_a_call_without_a_wait() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    server.sigstop();
    // The first caller asks the store, which gives no answer. The second caller finds it asking.
    let first = tokio::spawn(locks.mutex("k").wait(Duration::from_secs(30)).acquire());
    eventually("the first is at the front", async || {
        locks
            .mutex("k")
            .try_acquire()
            .await
            .is_ok_and(|tried| matches!(tried, TryAcquire::Busy { .. }))
    })
    .await;
    let error = locks
        .mutex("k")
        .wait(Duration::ZERO)
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    server.sigcont();
    // Its release may be late, too, and goes on in the background.
    drop(first.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_release_to_a_waiter_ends_in_the_call_timeout_in_an_outage() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("k").wait_forever().acquire());
    eventually("somebody waits", async || {
        !locks.snapshot().waited_for.is_empty()
    })
    .await;
    server.sigstop();
    let released = tokio::time::timeout(Duration::from_secs(60), guard.release());
    let error = released
        .await
        .expect("long before the lease is over")
        .unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    server.sigcont();
    drop(waiter.await.unwrap().unwrap());
}
