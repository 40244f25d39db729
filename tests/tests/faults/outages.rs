//! Tests of a server that is killed, frozen and restarted: holds end on time and not before, waiters recover.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire, test_util};
use tests::eventually::PATIENCE;
use tests::faults::{
    asleep, behind_a_proxy, connected, done_by, free_within, told, took, use_once,
};
use tests::{Data, RedisServer, answered, eventually, eventually_within};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(60 * 60);
const CALL: Duration = Duration::from_millis(300);
/// The time that the machine may add to a moment that is known exactly.
const SLACK: Duration = Duration::from_millis(250);

async fn manager(server: &RedisServer) -> LockManager {
    let builder = tests::builder().call_timeout(CALL);
    connected(builder, &server.url()).await
}

/// Does the same, and what the manager leaves behind is there for longer than any test.
async fn manager_that_blocks(server: &RedisServer) -> LockManager {
    let builder = tests::builder().call_timeout(CALL).lease(HOUR);
    connected(builder, &server.url()).await
}

/// Returns a manager that is answered although the machine is busy.
async fn patient(server: &RedisServer) -> LockManager {
    let builder = tests::builder().call_timeout(LONG);
    connected(builder, &server.url()).await
}

/// Asserts that the hold is believed in until its local deadline, and not a moment longer.
async fn ends_at_its_deadline(mut server: RedisServer, outage: impl FnOnce(&mut RedisServer)) {
    const LEASE: Duration = Duration::from_secs(4);
    let locks = manager(&server).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    let body = tokio::spawn(
        locks
            .mutex("body")
            .lease(LEASE)
            .run(async |_| std::future::pending::<()>().await),
    );
    eventually("the body runs", async || server.exists("lock:body")).await;
    outage(&mut server);
    // No renewal that is answered was sent later than now. The clock is read first: `until` is not after the deadline.
    let until = Instant::now() + guard.remaining();
    let over = Instant::now() + LEASE;
    let lost = guard.lost();
    loop {
        let believed = guard.is_held() && !lost.is_lost();
        if Instant::now() >= until {
            break;
        }
        assert!(believed, "unknown is not lost");
        tokio::time::sleep(5 * MS).await;
    }
    assert_eq!(done_by(over, lost.wait()).await, LostReason::Expired);
    assert!(!guard.is_held());
    // The body ends in a task of its own.
    let ended = done_by(over, body).await.unwrap();
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
    let (locks, other) = (patient(&server).await, patient(&server).await);
    let guard = locks.mutex("k").lease(24_000 * MS).acquire().await.unwrap();
    server.sigstop();
    eventually("more than a cadence was missed", async || {
        guard.remaining() < 15_000 * MS
    })
    .await;
    assert!(guard.is_held());
    server.sigcont();
    eventually("it is renewed", async || {
        assert!(guard.is_held());
        guard.remaining() > 15_000 * MS
    })
    .await;
    let tried = answered(async || other.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
    guard.release().await.unwrap();
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_restart_with_data_within_the_lease_costs_nothing() {
    let mut server = RedisServer::builder().appendonly().start();
    let (locks, other) = (patient(&server).await, patient(&server).await);
    // Two thirds of it are left when the server is started again, for which a busy disk may need long.
    let guard = locks.mutex("k").lease(90_000 * MS).acquire().await.unwrap();
    let token = guard.fencing_token();
    server.kill9();
    eventually_within(4 * LONG, "more than a cadence was missed", async || {
        guard.remaining() < 59_000 * MS
    })
    .await;
    server.restart(Data::Kept);
    eventually_within(4 * LONG, "it is renewed", async || {
        assert!(guard.is_held());
        guard.remaining() > 59_000 * MS
    })
    .await;
    assert_eq!(guard.fencing_token(), token);
    let tried = answered(async || other.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
    guard.release().await.unwrap();
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_restart_without_data_is_a_loss_and_frees_the_waiter() {
    let mut server = RedisServer::start();
    let locks = manager(&server).await;
    let (proxy, waiter) = behind_a_proxy(&server, told()).await;
    let guard = locks.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    let renewed = locks.mutex("renewed").lease(LONG);
    let renewed = renewed.acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(LONG).acquire()).await;
    server.restart(Data::Lost);
    // A waiter that has been deaf looks again, and need not be told.
    let next = waiting.await.unwrap().unwrap();
    assert!(
        next.fencing_token().unwrap() > token,
        "tokens rise across a restart"
    );
    // The loss of a key cannot be known before the next renewal, and is known with it.
    assert_eq!(renewed.lost().wait().await, LostReason::Refused);
    drop((guard, renewed));
    next.renew(LONG).await.unwrap();
    next.release().await.unwrap();
    drop((locks, waiter));
    server.assert_deserted().await;
}

#[tokio::test]
async fn waiters_outlive_an_outage_and_recover_by_themselves() {
    for frozen in [false, true] {
        eventually("an outage begins before the lease is over", async || {
            is_outlived(frozen).await
        })
        .await;
    }
}

/// Returns `false` if the hold was lost before the outage: on a busy machine, the disk may keep the server from its answers.
async fn is_outlived(frozen: bool) -> bool {
    let mut server = RedisServer::builder().appendonly().start();
    let holder = manager(&server).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder().call_timeout(CALL)).await;
    let guard = holder.mutex("k").lease(8_000 * MS).acquire().await.unwrap();
    // A busy disk may keep the server from its restart for longer than the lease.
    let front = asleep(&proxy, waiter.mutex("k").wait(4 * LONG).acquire()).await;
    let queued = tokio::spawn(waiter.mutex("k").wait(4 * LONG).acquire());
    if frozen {
        server.sigstop();
    } else {
        server.kill9();
    }
    if !guard.is_held() {
        return false;
    }
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    drop(guard);
    assert!(!front.is_finished() && !queued.is_finished());
    if frozen {
        server.sigcont();
    } else {
        server.restart(Data::Kept);
    }
    for waiting in [front, queued] {
        // A waiter that does not recover is told at the end of its wait that there was no answer.
        let next = waiting.await.unwrap();
        drop(next.unwrap_or_else(|error| panic!("frozen {frozen}: {error}")));
    }
    drop((holder, waiter));
    server.assert_deserted().await;
    true
}

#[tokio::test]
async fn a_caller_behind_an_unanswered_one_leaves_at_its_own_deadline() {
    let server = RedisServer::start();
    let locks = patient(&server).await;
    server.sigstop();
    let front = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    tokio::task::yield_now().await;
    let (wait, began) = (300 * MS, Instant::now());
    let waiting = locks.mutex("k").wait(wait).acquire();
    let error = done_by(began + wait + SLACK, waiting).await;
    assert!(
        matches!(error, Err(LockError::Unavailable { .. })),
        "not \"busy\": nobody knows: {error:?}"
    );
    assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    assert!(!front.is_finished(), "it is not answered");
    server.sigcont();
    front.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_from_a_dead_server_takes_its_wait_and_no_longer() {
    let mut server = RedisServer::start();
    let locks = manager(&server).await;
    use_once(locks.mutex("k").wait(LONG)).await;
    for frozen in [true, false] {
        if frozen {
            server.sigstop();
        } else {
            server.kill9();
        }
        for wait in [0, 50, 500, 1_500] {
            let wait = wait * MS;
            // A caller that does not wait still makes its one call.
            let bound = if wait.is_zero() { CALL } else { wait };
            let (began, waiting) = (Instant::now(), locks.mutex("k").wait(wait).acquire());
            let error = done_by(began + bound + SLACK, waiting).await.unwrap_err();
            let waited = began.elapsed();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            assert!(
                error.is_retryable() && error.to_string().contains("`k`"),
                "{error}"
            );
            assert!(
                waited + 5 * MS >= wait,
                "{wait:?}: gave up after {waited:?}"
            );
        }
        let trying = locks.mutex("k").try_acquire();
        let tried = done_by(Instant::now() + CALL + SLACK, trying).await;
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
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
            use_once(locks.mutex("k").wait(LONG)).await;
        }
    }
}

#[tokio::test]
async fn an_acquire_that_a_freeze_interrupted_leaves_no_orphan() {
    let server = RedisServer::start();
    let locks = manager_that_blocks(&server).await;
    let other = patient(&server).await;
    use_once(locks.mutex("k").wait(LONG)).await;
    server.sigstop();
    let tried = locks.mutex("k").try_acquire().await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    drop(tokio::time::timeout(20 * MS, locks.mutex("k").acquire()).await);
    server.sigcont();
    free_within(&other, "k", PATIENCE).await;
    drop((locks, other));
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_release_during_an_outage_is_made_good_after_it() {
    for frozen in [true, false] {
        let mut server = RedisServer::builder().appendonly().start();
        let locks = manager_that_blocks(&server).await;
        let other = patient(&server).await;
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
        assert!(waited < PATIENCE, "{waited:?}");
        if frozen {
            server.sigcont();
        } else {
            server.restart(Data::Kept);
        }
        for key in ["by-hand", "by-drop"] {
            free_within(&other, key, PATIENCE).await;
        }
        drop((locks, other));
        server.assert_deserted().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_in_an_outage_fails_after_the_call_timeout() {
    let builder = tests::builder().call_timeout(CALL);
    let (locks, control) = test_util::of(builder).unwrap();
    let guard = locks.mutex("k").acquire().await.unwrap();
    control.go_away();
    let (released, waited) = took(guard.release()).await;
    assert!(
        matches!(released, Err(LockError::Unavailable { .. })),
        "{released:?}"
    );
    // Paused time goes on in steps of a millisecond. The last question takes none of it.
    assert!(waited >= CALL && waited <= CALL + 2 * MS, "{waited:?}");
    control.come_back();
    free_within(&locks, "k", LONG).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    let mut server = RedisServer::builder()
        .line("key-load-delay 1000")
        .line("loading-process-events-interval-bytes 1024")
        .line("save 3600 1")
        .start();
    // A busy machine may stand still for seconds while it loads.
    let fill =
        "for i = 1, 50000 do redis.call('SET', 'lock:fence:{' .. i .. '}', i) end return 'ok'";
    server.query::<String>(&["EVAL", fill, "0"]);
    let (locks, url) = (manager(&server).await, server.url());
    let restarting = tokio::task::spawn_blocking(move || {
        server.restart(Data::Kept);
        server
    });
    eventually("the server loads", async || {
        let inspected = locks.inspect("k").await;
        inspected.is_err_and(|error| error.to_string().contains("LOADING"))
    })
    .await;
    let waiting = tokio::spawn(locks.mutex("k").wait(2 * LONG).acquire());
    // It has been so slow only for the test to see it.
    let mut connection = tests::server::patient(&url).await;
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg("key-load-delay").arg(0);
    let set: Result<(), _> = command.query_async(&mut connection).await;
    set.unwrap();
    drop(waiting.await.unwrap().unwrap());
    let server = restarting.await.unwrap();
    server.assert_clean().await;
}
