//! Tests of a network that cuts, delays and swallows: what was not answered is unknown, neither done nor lost.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder, LostReason, TryAcquire};
use tests::faults::{Op, asleep, behind_a_proxy, connected, free_within, renewed, took};
use tests::store::CALL_TIMEOUT;
use tests::{CommandStats, Direction, FaultProxy, RedisServer, Then, answered, eventually};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// The time to notice a silent connection: the call that timed out, a sign of life that is missing for a second, and
/// connecting. That is far less on a machine that is idle. A lost hold would last for longer.
const NOTICED: Duration = Duration::from_secs(60);

/// Starts two managers whose holds last for longer than any test, unless a request says otherwise.
async fn scene() -> (RedisServer, FaultProxy, LockManager, LockManager) {
    scene_with(tests::builder().lease(HOUR)).await
}

/// Starts two managers with these settings, the first one behind a proxy.
async fn scene_with(
    builder: LockManagerBuilder,
) -> (RedisServer, FaultProxy, LockManager, LockManager) {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, builder.clone()).await;
    let other = connected(builder, &server.url()).await;
    free_within(&locks, "warm", LONG).await;
    (server, proxy, locks, other)
}

async fn end(server: RedisServer, locks: LockManager, other: LockManager) {
    server.assert_clean().await;
    drop((locks, other));
    server.assert_deserted().await;
}

/// Asserts that the lock is busy for this manager.
async fn assert_busy(locks: &LockManager) {
    let tried = answered(async || locks.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
}

/// Runs the scenario for each way to lose a reply, both at the same time: with its connection, which is noticed at
/// once, or in silence.
async fn each_way(scenario: impl AsyncFn(Then)) {
    tokio::join!(scenario(Then::Cut), scenario(Then::Silence));
}

#[tokio::test]
async fn a_cut_connection_does_not_end_a_hold() {
    let (server, proxy, locks, other) = scene().await;
    let guard = locks.mutex("k").lease(18_000 * MS).acquire().await.unwrap();
    for _ in 0..2 {
        proxy.cut();
        renewed([&guard]).await;
    }
    assert_busy(&other).await;
    guard.release().await.unwrap();
    assert!(!server.exists("lock:k"));
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_cut_connection_does_not_end_a_wait() {
    // The new subscription makes the waiter ask again, and then a message does, and nothing else.
    let builder = tests::builder().longest_nap(HOUR).lease(HOUR);
    let (server, proxy, locks, other) = scene_with(builder).await;
    let guard = other.mutex("k").acquire().await.unwrap();
    let waiter = asleep(&proxy, locks.mutex("k").wait(LONG).acquire()).await;
    let asked = proxy.count("EVALSHA");
    proxy.cut();
    eventually("it listens and asks again", async || {
        proxy.open_connections() == 2 && proxy.count("EVALSHA") > asked
    })
    .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    end(server, locks, other).await;
}

#[tokio::test]
async fn an_acquire_with_a_lost_reply_is_undone_and_repeated_in_time() {
    each_way(async |then| {
        let (server, proxy, locks, other) = scene().await;
        Op::Acquire.lose_reply(&proxy, then);
        let (guard, waited) = took(locks.mutex("k").wait(LONG).acquire()).await;
        let guard = guard.unwrap();
        assert!(proxy.trap_sprung());
        assert!(waited < NOTICED, "{then:?}: {waited:?}");
        // The hold is the repeated one, counted once, and nothing undoes it later.
        let info = other.inspect("k").await.unwrap();
        assert!(info.held && info.count == 1, "{info:?}");
        guard.renew(LONG).await.unwrap();
        guard.release().await.unwrap();
        free_within(&other, "k", NOTICED).await;
        end(server, locks, other).await;
    })
    .await;
}

#[tokio::test]
async fn a_try_whose_reply_is_lost_leaves_no_orphan() {
    each_way(async |then| {
        let (server, proxy, locks, other) = scene().await;
        Op::Acquire.lose_reply(&proxy, then);
        let (tried, waited) = took(locks.mutex("k").try_acquire()).await;
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
        assert!(waited < NOTICED, "bounded by the call timeout: {waited:?}");
        free_within(&other, "k", NOTICED).await;
        end(server, locks, other).await;
    })
    .await;
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_counts_as_released() {
    let (server, proxy, locks, other) = scene().await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    Op::Release.lose_reply(&proxy, Then::Cut);
    guard.release().await.unwrap();
    assert!(proxy.trap_sprung());
    free_within(&other, "k", NOTICED).await;

    // Silence takes the whole of the caller's time: the release is not confirmed, but done.
    let guard = locks.mutex("k").acquire().await.unwrap();
    Op::Release.lose_reply(&proxy, Then::Silence);
    let (released, waited) = took(guard.release()).await;
    assert!(
        matches!(released, Ok(()) | Err(LockError::Unavailable { .. })),
        "{released:?}"
    );
    assert!(waited < NOTICED, "{waited:?}");
    free_within(&other, "k", NOTICED).await;
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_repeated_release_spares_the_next_holder() {
    let (server, proxy, locks, other) = scene().await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    Op::Release.lose_reply(&proxy, Then::Silence);
    let releasing = tokio::spawn(guard.release());
    eventually("the release was applied", async || proxy.trap_sprung()).await;
    let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
    let before = CommandStats::of(&server);
    let _ = releasing.await.unwrap();
    eventually("the release was repeated", async || {
        CommandStats::of(&server).since(&before).calls("hdel") >= 1
    })
    .await;
    next.renew(LONG).await.unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_renewal_whose_reply_is_lost_is_repeated() {
    each_way(async |then| {
        let (server, proxy, locks, other) = scene().await;
        let guard = locks.mutex("k").lease(24_000 * MS).acquire().await.unwrap();
        Op::Renew.lose_reply(&proxy, then);
        eventually("the renewal's reply is lost", async || proxy.trap_sprung()).await;
        // By a later one.
        renewed([&guard]).await;
        guard.release().await.unwrap();
        end(server, locks, other).await;
    })
    .await;
}

#[tokio::test]
async fn holds_are_kept_by_a_store_whose_every_answer_is_late() {
    // In the first case, answers are late by a third of the lease. In the second, they are later than a call may take,
    // than a sign of life and than opening a connection. In the third, calls that are given up meanwhile make the
    // connection look dead nearly all the time. A quarter of the lease is left for a machine that stands still.
    let late_by = async |late: Duration, lease: Duration, with_calls: bool| {
        let (server, proxy, locks, other) = scene().await;
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        proxy.delay(Direction::Replies, late);
        let caller = locks.clone();
        let calls = with_calls.then(|| {
            tokio::spawn(async move {
                loop {
                    let tried = caller.mutex("asked").wait(Duration::ZERO).acquire().await;
                    assert!(tried.is_err(), "{tried:?}");
                    tokio::time::sleep(20 * MS).await;
                }
            })
        });
        // By then, it would be over without a second renewal, or with one that waits for the connection.
        let over = Instant::now() + lease * 3 / 2;
        while Instant::now() < over {
            assert!(
                guard.is_held(),
                "answers {late:?} late, calls: {with_calls}"
            );
            tokio::time::sleep(20 * MS).await;
        }
        assert!(guard.remaining() < lease - late);
        if let Some(calls) = calls {
            assert!(!calls.is_finished(), "a call was answered");
            calls.abort();
        }
        proxy.delay(Direction::Replies, Duration::ZERO);
        free_within(&locks, "other", LONG).await;
        guard.release().await.unwrap();
        end(server, locks, other).await;
    };
    tokio::join!(
        late_by(12_000 * MS, 36_000 * MS, false),
        late_by(6_000 * MS, 36_000 * MS, false),
        late_by(12_000 * MS, 36_000 * MS, true)
    );
}

#[tokio::test]
async fn a_renewal_is_sent_on_a_connection_that_is_silent() {
    let (server, proxy, locks, other) = scene().await;
    let guard = locks.mutex("k").lease(24_000 * MS).acquire().await.unwrap();
    proxy.stall(Direction::Replies, true);
    // A call with little time makes the connection look dead long before the renewal. No other connection can be opened.
    let call = locks.mutex("x").lease(3_000 * MS).wait(Duration::ZERO);
    let tried = call.acquire().await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    let left = async || server.ask::<i64>(&["PTTL", "lock:k"]).await;
    let mut least = left().await;
    eventually("the store has renewed the lease", async || {
        let left = left().await;
        assert!(left > 0, "the lease has ended");
        least = least.min(left);
        left > least
    })
    .await;
    proxy.stall(Direction::Replies, false);
    renewed([&guard]).await;
    guard.release().await.unwrap();
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_hand_over_with_a_lost_reply_still_serves_the_waiter() {
    each_way(async |then| {
        let (server, proxy, locks, other) = scene().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let waiter = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
        eventually("it queues", async || {
            locks.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        Op::HandOver.lose_reply(&proxy, then);
        let released = guard.release().await;
        assert!(
            matches!(released, Ok(()) | Err(LockError::Unavailable { .. })),
            "{released:?}"
        );
        assert!(proxy.trap_sprung());
        let (next, waited) = took(waiter).await;
        let next = next.unwrap().unwrap();
        assert!(waited < NOTICED, "{waited:?}");
        // The compensation of the lost hand-over does not undo the waiter's own hold.
        next.renew(LONG).await.unwrap();
        assert_busy(&other).await;
        next.release().await.unwrap();
        free_within(&other, "k", NOTICED).await;
        end(server, locks, other).await;
    })
    .await;
}

#[tokio::test]
async fn the_deadline_counts_from_before_the_request_was_sent() {
    let (server, proxy, locks, other) = scene().await;
    proxy.delay(Direction::Requests, 60 * MS);
    proxy.delay(Direction::Replies, 60 * MS);
    let request = locks.mutex("k").lease(LONG).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    // This is the lease less its margin of 300 ms and less both delays. The server's lease began after the first of
    // them.
    assert!(guard.remaining() <= 29_580 * MS, "{:?}", guard.remaining());
    let left = Duration::from_millis(server.pttl("lock:k").unsigned_abs());
    assert!(
        guard.remaining() < left,
        "{:?} of {left:?}",
        guard.remaining()
    );
    guard.release().await.unwrap();
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_black_hole_either_way_ends_a_hold_at_its_local_deadline() {
    let in_one = async |direction| {
        let (server, proxy, locks, other) = scene().await;
        let guard = locks.mutex("k").lease(1_000 * MS).wait(LONG);
        let guard = guard.acquire().await.unwrap();
        proxy.black_hole(direction, true);
        let (reason, waited) = took(guard.lost().wait()).await;
        assert_eq!(reason, LostReason::Expired);
        assert!(!guard.is_held() && guard.remaining().is_zero());
        assert!(waited < NOTICED, "{direction:?}: {waited:?}");
        assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
        // For other managers, the key has expired, or does so within the lease of a renewal that arrived.
        free_within(&other, "k", NOTICED).await;
        let tried = locks.mutex("k").try_acquire().await;
        assert!(
            matches!(tried, Err(LockError::Unavailable { .. })),
            "{tried:?}"
        );
        proxy.black_hole(direction, false);
        free_within(&locks, "k", LONG).await;
        end(server, locks, other).await;
    };
    tokio::join!(in_one(Direction::Requests), in_one(Direction::Replies));
}

#[tokio::test]
async fn connections_that_died_silently_are_replaced_within_the_lease() {
    let (server, proxy, locks, other) = scene().await;
    let guard = locks.mutex("k").lease(36_000 * MS).acquire().await.unwrap();
    proxy.freeze_open_connections();
    // A call notices it. The renewal after 12 s would be the next one.
    let (tried, _) = took(locks.mutex("x").wait(Duration::ZERO).acquire()).await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    free_within(&locks, "x", NOTICED).await;
    renewed([&guard]).await;
    guard.release().await.unwrap();
    end(server, locks, other).await;
}

#[tokio::test]
async fn an_acquire_that_arrives_late_is_refused_by_the_server() {
    let (server, proxy, locks, other) = scene().await;
    proxy.stall(Direction::Requests, true);
    let sent = Instant::now();
    let tried = locks.mutex("k").try_acquire().await;
    assert!(
        matches!(tried, Err(LockError::Unavailable { .. })),
        "{tried:?}"
    );
    eventually("its not_after has passed", async || {
        sent.elapsed() > CALL_TIMEOUT * 2
    })
    .await;
    let before = CommandStats::of(&server);
    proxy.stall(Direction::Requests, false);
    eventually("the acquire arrives at last", async || {
        CommandStats::of(&server).since(&before).calls("evalsha") >= 1
    })
    .await;
    let wrote = CommandStats::of(&server).since(&before);
    assert_eq!(
        wrote.calls("hset"),
        0,
        "a late acquire took the lock: {wrote:?}"
    );
    free_within(&other, "k", NOTICED).await;
    end(server, locks, other).await;
}

#[tokio::test]
async fn a_slow_network_slows_locks_and_breaks_none() {
    // A message wakes the waiter. It would otherwise sleep for as long as the lease lasts that it has heard of.
    let (server, proxy, locks, other) =
        scene_with(tests::builder().longest_nap(HOUR).lease(HOUR)).await;
    proxy.delay(Direction::Requests, 60 * MS);
    proxy.delay(Direction::Replies, 60 * MS);
    let guard = locks.mutex("k").lease(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(2 * LONG).acquire());
    renewed([&guard]).await;
    assert!(guard.is_held() && !waiter.is_finished());
    guard.release().await.unwrap();
    let (next, waited) = took(waiter).await;
    assert!(waited < NOTICED, "{waited:?}");
    next.unwrap().unwrap().release().await.unwrap();
    end(server, locks, other).await;
}
