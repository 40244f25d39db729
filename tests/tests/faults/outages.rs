//! Tests of a server that is killed, frozen and restarted: holds end on time and not before, waiters recover.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::{asleep, behind_a_proxy, free_within, took};
use tests::{Data, RedisServer, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The time that the machine may add to a moment that is known exactly.
const SLACK: Duration = Duration::from_millis(250);
/// The time to recover: a supervisor's longest pause, a waiter's, and the machine's.
const RECOVERED: Duration = Duration::from_millis(1_000 + 750 + 500);

async fn manager(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().call_timeout(300 * MS);
    builder.connect(&server.url()).await.unwrap()
}

/// Asserts that the hold is believed in until its local deadline, and not a moment longer.
async fn ends_at_its_deadline(mut server: RedisServer, outage: impl FnOnce(&mut RedisServer)) {
    let locks = manager(&server).await;
    let guard = locks.mutex("k").lease(1_000 * MS).acquire().await.unwrap();
    let body = tokio::spawn(
        locks
            .mutex("body")
            .lease(1_000 * MS)
            .run(async |_| std::future::pending::<()>().await),
    );
    eventually("the body runs", async || server.exists("lock:body")).await;
    outage(&mut server);
    let over = tokio::time::Instant::now() + 1_000 * MS + SLACK;
    let lost = guard.lost();
    while guard.remaining() > 20 * MS {
        assert!(guard.is_held() && !lost.is_lost(), "unknown is not lost");
        tokio::time::sleep(5 * MS).await;
    }
    let reason = tokio::time::timeout_at(over, lost.wait()).await;
    assert_eq!(reason.expect("it is lost on time"), LostReason::Expired);
    assert!(!guard.is_held());
    // The body was acquired after the guard, and ends in a task of its own.
    let body = tokio::time::timeout_at(over + SLACK, body).await;
    let ended = body.expect("the body was dropped on time").unwrap();
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
    drop(locks);
}

#[tokio::test]
async fn a_killed_server_ends_a_hold_at_its_local_deadline() {
    ends_at_its_deadline(RedisServer::start(), RedisServer::kill9).await;
}

#[tokio::test]
async fn a_frozen_server_ends_a_hold_at_its_local_deadline() {
    ends_at_its_deadline(RedisServer::start(), |server| server.sigstop()).await;
}

#[tokio::test]
async fn a_server_that_thaws_within_the_lease_costs_nothing() {
    let server = RedisServer::start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    let guard = locks.mutex("k").lease(2_400 * MS).acquire().await.unwrap();
    server.sigstop();
    eventually("more than a cadence was missed", async || {
        guard.remaining() < 1_200 * MS
    })
    .await;
    assert!(guard.is_held());
    server.sigcont();
    eventually_within(1_200 * MS, "it is renewed", async || {
        assert!(guard.is_held());
        guard.remaining() > 2_000 * MS
    })
    .await;
    assert!(matches!(
        other.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_restart_with_data_within_the_lease_costs_nothing() {
    let mut server = RedisServer::builder().appendonly().start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    let guard = locks.mutex("k").lease(3_000 * MS).acquire().await.unwrap();
    let token = guard.fencing_token();
    server.kill9();
    eventually("more than a cadence was missed", async || {
        guard.remaining() < 1_800 * MS
    })
    .await;
    server.restart(Data::Kept);
    eventually_within(1_800 * MS, "it is renewed", async || {
        assert!(guard.is_held());
        guard.remaining() > 2_700 * MS
    })
    .await;
    assert_eq!(guard.fencing_token(), token);
    assert!(
        other
            .mutex("k")
            .wait(Duration::ZERO)
            .acquire()
            .await
            .is_err()
    );
    guard.release().await.unwrap();
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_restart_without_data_is_told_to_the_holder_and_frees_the_waiter() {
    let mut server = RedisServer::start();
    let locks = manager(&server).await;
    let (proxy, waiter) = behind_a_proxy(&server, LockManager::builder()).await;
    let guard = locks.mutex("k").lease(3_000 * MS).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(LONG).acquire()).await;
    let began = tokio::time::Instant::now();
    server.restart(Data::Lost);
    let (next, waited) = took(waiting).await;
    assert!(waited < RECOVERED, "{waited:?}");
    let next = next.unwrap().unwrap();
    assert!(
        next.fencing_token().unwrap() > token,
        "tokens rise across a restart"
    );
    // The loss of a key cannot be known before the next renewal, and is known with it.
    let reason = guard.lost().wait().await;
    assert!(matches!(reason, LostReason::Refused | LostReason::Expired));
    assert!(began.elapsed() < 3_000 * MS);
    drop(guard);
    next.renew(LONG).await.unwrap();
    next.release().await.unwrap();
    drop((locks, waiter));
    server.assert_deserted().await;
}

#[tokio::test]
async fn waiters_outlive_an_outage_and_recover_by_themselves() {
    for frozen in [false, true] {
        let mut server = RedisServer::builder().appendonly().start();
        let holder = manager(&server).await;
        let (proxy, waiter) =
            behind_a_proxy(&server, LockManager::builder().call_timeout(300 * MS)).await;
        let guard = holder.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
        let head = asleep(&proxy, waiter.mutex("k").wait(LONG).acquire()).await;
        let queued = tokio::spawn(waiter.mutex("k").wait(LONG).acquire());
        if frozen {
            server.sigstop();
        } else {
            server.kill9();
        }
        assert_eq!(guard.lost().wait().await, LostReason::Expired);
        drop(guard);
        assert!(!head.is_finished() && !queued.is_finished());
        if frozen {
            server.sigcont();
        } else {
            server.restart(Data::Kept);
        }
        let (next, waited) = took(head).await;
        assert!(waited < RECOVERED, "frozen {frozen}: {waited:?}");
        next.unwrap().unwrap().release().await.unwrap();
        let last = queued.await.unwrap().unwrap();
        last.release().await.unwrap();
        drop((holder, waiter));
        server.assert_deserted().await;
    }
}

#[tokio::test]
async fn a_caller_behind_one_without_an_answer_leaves_at_its_own_deadline() {
    let server = RedisServer::start();
    let builder = LockManager::builder().call_timeout(5_000 * MS);
    let locks = builder.connect(&server.url()).await.unwrap();
    server.sigstop();
    let head = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    tokio::task::yield_now().await;
    let (error, waited) = took(locks.mutex("k").wait(300 * MS).acquire()).await;
    assert!(
        matches!(error, Err(LockError::Unavailable { .. })),
        "not \"busy\": nobody knows: {error:?}"
    );
    assert!(
        waited >= 300 * MS && waited < 300 * MS + SLACK,
        "{waited:?}"
    );
    server.sigcont();
    head.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_from_a_dead_server_takes_its_wait_and_no_longer() {
    let mut server = RedisServer::start();
    let locks = manager(&server).await;
    free_within(&locks, "k", LONG).await;
    for frozen in [true, false] {
        if frozen {
            server.sigstop();
        } else {
            server.kill9();
        }
        for wait in [0, 50, 500, 1_500] {
            let wait = wait * MS;
            let (error, waited) = took(locks.mutex("k").wait(wait).acquire()).await;
            let error = error.unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            assert!(
                error.is_retryable() && error.to_string().contains("`k`"),
                "{error}"
            );
            // A caller that does not wait still makes its one call.
            let bound = if wait.is_zero() { 300 * MS } else { wait };
            assert!(waited < bound + SLACK, "{wait:?}: {waited:?}");
            assert!(
                waited + 5 * MS >= wait,
                "{wait:?}: gave up after {waited:?}"
            );
        }
        let (tried, waited) = took(locks.mutex("k").try_acquire()).await;
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
        assert!(waited < 300 * MS + SLACK, "{waited:?}");
        for answer in [
            locks.inspect("k").await.map(drop),
            locks.force_release("k").await.map(drop),
        ] {
            assert!(
                matches!(answer, Err(LockError::Unavailable { .. })),
                "{answer:?}"
            );
        }
        if frozen {
            server.sigcont();
            free_within(&locks, "k", LONG).await;
        }
    }
}

#[tokio::test]
async fn an_acquire_that_a_freeze_interrupted_leaves_no_orphan() {
    let server = RedisServer::start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    free_within(&locks, "k", LONG).await;
    server.sigstop();
    let tried = locks.mutex("k").try_acquire().await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    drop(tokio::time::timeout(20 * MS, locks.mutex("k").acquire()).await);
    server.sigcont();
    free_within(&other, "k", RECOVERED).await;
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_release_during_an_outage_is_made_good_after_it() {
    for frozen in [true, false] {
        let mut server = RedisServer::builder().appendonly().start();
        let (locks, other) = (manager(&server).await, manager(&server).await);
        let by_hand = locks.mutex("by-hand").acquire().await.unwrap();
        let by_drop = locks.mutex("by-drop").acquire().await.unwrap();
        if frozen {
            server.sigstop();
        } else {
            server.kill9();
        }
        drop(by_drop);
        let (released, waited) = took(by_hand.release()).await;
        assert!(
            matches!(released, Err(LockError::Unavailable { .. })),
            "{released:?}"
        );
        assert!(waited < 600 * MS + SLACK, "{waited:?}");
        if frozen {
            server.sigcont();
        } else {
            server.restart(Data::Kept);
        }
        // This is long before the 30 s of the lease are over.
        for key in ["by-hand", "by-drop"] {
            free_within(&other, key, RECOVERED + 1_500 * MS).await;
        }
        drop((locks, other));
        server.assert_deserted().await;
    }
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    let mut server = RedisServer::builder()
        .line("key-load-delay 1000")
        .line("loading-process-events-interval-bytes 1024")
        .line("save 3600 1")
        .start();
    let fill =
        "for i = 1, 1000 do redis.call('SET', 'lock:fence:{' .. i .. '}', i) end return 'ok'";
    server.query::<String>(&["EVAL", fill, "0"]);
    let locks = manager(&server).await;
    let restarting = tokio::task::spawn_blocking(move || {
        server.restart(Data::Kept);
        server
    });
    eventually("the server loads", async || {
        let inspected = locks.inspect("k").await;
        inspected.is_err_and(|error| error.to_string().contains("LOADING"))
    })
    .await;
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    let server = restarting.await.unwrap();
    guard.release().await.unwrap();
    server.assert_clean().await;
}
