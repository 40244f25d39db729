//! Tests of counters when messages and replies are lost: nobody hangs, nothing is done twice, and an unknown outcome is
//! reported as unknown.

use std::pin::pin;
use std::time::Duration;

use lock_runtime::LockError;
use tests::faults::{asleep, behind_a_proxy, connected, took};
use tests::{CommandStats, Direction, RedisServer, Then, answered, eventually};
use tokio::time::{Instant, timeout};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_waiter_of_a_latch_looks_again_when_messages_are_lost() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let other = tests::connected(&server.url()).await;
    let latch = locks.latch("l");
    proxy.lose_messages(true);
    for silently in [false, true] {
        other.latch("l").try_set_count(1).await.unwrap();
        let waiting = latch.clone();
        let waiting = asleep(&proxy, async move { waiting.opened().wait(4 * LONG).await }).await;
        if silently {
            let _: i64 = server.query(&["DEL", "lock:l"]);
        } else {
            other.latch("l").count_down().await.unwrap();
        }
        let (opened, waited) = took(waiting).await;
        opened.unwrap().unwrap();
        assert!(waited < 2 * LONG, "{waited:?}");
    }
}

#[tokio::test]
async fn a_latch_opened_during_a_cut_subscription_is_seen_after_it() {
    let server = RedisServer::start();
    // Nothing else than the new subscription makes the waiter ask again.
    let builder = tests::builder().longest_nap(60 * LONG);
    let (proxy, locks) = behind_a_proxy(&server, builder).await;
    let other = tests::connected(&server.url()).await;
    let latch = locks.latch("l");
    other.latch("l").try_set_count(1).await.unwrap();
    let waiting = latch.clone();
    let waiting = asleep(&proxy, async move { waiting.opened().wait(LONG).await }).await;
    proxy.go_down();
    other.latch("l").count_down().await.unwrap();
    proxy.refuse(false);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn plain_permits_granted_just_after_the_wait_are_not_lost() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let semaphore = locks.plain_semaphore("s");
    // The answer is waited for beyond the end of the wait, for a fifth of a second. On a busy machine it may come even
    // later: then nothing is said here, and it is asked for anew.
    let taken = answered(async || {
        semaphore.delete().await?;
        semaphore.try_set_permits(1).await?;
        proxy.delay(Direction::Replies, 60 * MS);
        let taken = semaphore.permits(1).wait(20 * MS).acquire().await;
        proxy.delay(Direction::Replies, Duration::ZERO);
        taken
    });
    taken.await.expect("the answer was waited for");
    semaphore.release(1).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_not_answered_is_unknown_and_sent_once() {
    let server = RedisServer::start();
    // The call timeout is long enough for a busy machine: what reaches the server later than that is refused, and not
    // done.
    let (proxy, locks) = behind_a_proxy(&server, tests::builder().call_timeout(6_000 * MS)).await;
    let (semaphore, latch) = (locks.plain_semaphore("s"), locks.latch("l"));
    semaphore.try_set_permits(10).await.unwrap();
    latch.try_set_count(6).await.unwrap();
    // After these calls the server knows the scripts: what is lost below is an answer, not a request for the text.
    semaphore.permits(1).wait(LONG).acquire().await.unwrap();
    semaphore.release(1).await.unwrap();
    latch.count_down().await.unwrap();
    let lose = |then| {
        proxy.lose_reply_to(
            |args| args[0] == b"EVALSHA" && args.get(2).is_some_and(|keys| *keys == b"1"),
            then,
        );
    };
    let unknown = |answer: Result<(), LockError>| match answer {
        Err(error @ LockError::Unavailable { .. }) => {
            assert!(error.to_string().contains("unknown whether"), "{error}");
        }
        answer => panic!("{answer:?}"),
    };
    for then in [Then::Cut, Then::Silence] {
        lose(then);
        unknown(semaphore.permits(2).wait(LONG).acquire().await);
        lose(then);
        unknown(semaphore.release(1).await);
        lose(then);
        unknown(latch.count_down().await.map(|_| ()));
    }
    let available = answered(async || semaphore.available().await).await;
    assert_eq!(available.unwrap(), 10 - 2 * 2 + 2);
    // A question changes nothing, so it is asked again.
    proxy.lose_reply_to(|args| args[0] == b"EVALSHA", Then::Cut);
    assert_eq!(latch.count().await.unwrap(), 3);
    assert!(proxy.trap_sprung());
}

#[tokio::test]
async fn permits_of_a_departed_caller_return_once_the_server_writes() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder().call_timeout(LONG)).await;
    let semaphore = locks.plain_semaphore("s");
    semaphore.try_set_permits(1).await.unwrap();
    semaphore.permits(1).wait(LONG).acquire().await.unwrap();
    semaphore.release(1).await.unwrap();
    let are_free = async |number: &str| {
        let free: String = server.ask(&["GET", "lock:s"]).await;
        free == number
    };
    proxy.stall(Direction::Replies, true);
    let taking = tokio::spawn(semaphore.permits(1).wait(LONG).acquire());
    eventually("the server grants them", async || are_free("0").await).await;
    taking.abort();
    assert!(taking.await.unwrap_err().is_cancelled());

    // As after a failover: the server has no replica, and refuses to write.
    let replicas = "min-replicas-to-write";
    let _: () = server.ask(&["CONFIG", "SET", replicas, "1"]).await;
    proxy.stall(Direction::Replies, false);
    eventually("giving them back is refused", async || {
        let errors: String = server.ask(&["INFO", "errorstats"]).await;
        errors.contains("errorstat_NOREPLICAS")
    })
    .await;
    let _: () = server.ask(&["CONFIG", "SET", replicas, "0"]).await;
    eventually("they are given back", async || are_free("1").await).await;
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_ends_no_wait() {
    let server = RedisServer::start();
    // Its waiter at the front asks again and again.
    let builder = tests::builder()
        .call_timeout(200 * MS)
        .longest_nap(100 * MS);
    let (proxy, locks) = behind_a_proxy(&server, builder).await;
    let other = tests::connected(&server.url()).await;
    other.latch("l").try_set_count(1).await.unwrap();
    let latch = locks.latch("l");
    let waiting = latch.clone();
    let waiting = asleep(&proxy, async move { waiting.opened().wait(LONG).await }).await;
    proxy.go_down();
    // A caller behind it is told what it last heard.
    eventually("the outage is told to those behind the front", async || {
        let refused = latch.opened().wait(200 * MS).await;
        matches!(refused, Err(LockError::Unavailable { .. }))
    })
    .await;
    assert!(!waiting.is_finished());
    proxy.refuse(false);
    other.latch("l").count_down().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn two_hundred_who_wait_for_a_latch_ask_as_one() {
    let server = RedisServer::start();
    // Only a message makes the one at the front ask again.
    let builder = tests::builder().longest_nap(60 * LONG);
    let locks = connected(builder, &server.url()).await;
    let latch = locks.latch("l");
    latch.try_set_count(1).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let latch = latch.clone();
        waiting.spawn(async move { latch.opened().wait(LONG).await });
    }
    eventually("all of them wait", async || {
        locks.inspect("l").await.unwrap().local_waiters == 200
    })
    .await;
    let before = CommandStats::of(&server);
    latch.count_down().await.unwrap();
    while let Some(waiter) = waiting.join_next().await {
        waiter.unwrap().unwrap();
    }
    let asked = CommandStats::of(&server).since(&before).scripts();
    assert!(asked <= 6, "{asked} scripts");
}

#[tokio::test]
async fn a_shutdown_waits_for_the_answer_to_a_count() {
    /// It waits for this long at most.
    const DRAIN: Duration = Duration::from_secs(2);
    for _ in 0..10 {
        let server = RedisServer::start();
        let builder = tests::builder().call_timeout(LONG);
        let (proxy, locks) = behind_a_proxy(&server, builder).await;
        let latch = locks.latch("l");
        latch.try_set_count(2).await.unwrap();
        latch.count_down().await.unwrap();
        proxy.stall(Direction::Replies, true);
        let sent = proxy.requests();
        let counting = tokio::spawn(async move { latch.count_down().await });
        eventually("it is on its way", async || proxy.requests() > sent).await;
        let began = Instant::now();
        let mut closing = pin!(locks.shutdown());
        let closed = timeout(100 * MS, closing.as_mut()).await;
        assert!(closed.is_err() || began.elapsed() >= DRAIN, "it waits");
        proxy.stall(Direction::Replies, false);
        if closed.is_err() {
            closing.await;
        }
        // A busy machine may have kept the answer back for longer.
        if began.elapsed() < DRAIN {
            assert_eq!(counting.await.unwrap().unwrap(), 0);
            return;
        }
    }
    panic!("the answer always came too late");
}
