//! Tests of counters when messages and replies are lost: nobody hangs, nothing is done twice, and an unknown outcome is
//! reported as unknown.

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::faults::{asleep, behind_a_proxy, took};
use tests::{CommandStats, Direction, RedisServer, Then, eventually};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The cap of a sleep: 1 s give or take a fifth. The rest is slack for a slow machine.
const CAP: Duration = Duration::from_millis(1_200 + 300);

#[tokio::test]
async fn a_latch_whose_messages_are_lost_costs_no_more_than_the_cap() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, LockManager::builder()).await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    let latch = locks.latch("l");
    proxy.lose_messages(true);
    for silently in [false, true] {
        other.latch("l").try_set_count(1).await.unwrap();
        let waiting = latch.clone();
        let waiting = asleep(&proxy, async move { waiting.opened().wait(LONG).await }).await;
        if silently {
            let _: i64 = server.query(&["DEL", "lock:l"]);
        } else {
            other.latch("l").count_down().await.unwrap();
        }
        let (opened, waited) = took(waiting).await;
        opened.unwrap().unwrap();
        assert!(waited < CAP, "{waited:?}");
    }
}

#[tokio::test]
async fn a_latch_that_opens_while_the_subscription_is_cut_is_seen_after_it() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, LockManager::builder()).await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    let latch = locks.latch("l");
    other.latch("l").try_set_count(1).await.unwrap();
    let waiting = latch.clone();
    let waiting = asleep(&proxy, async move { waiting.opened().wait(LONG).await }).await;
    proxy.go_down();
    other.latch("l").count_down().await.unwrap();
    proxy.refuse(false);
    let (opened, waited) = took(waiting).await;
    opened.unwrap().unwrap();
    assert!(waited < CAP + 500 * MS, "{waited:?}");
}

#[tokio::test]
async fn plain_permits_that_are_granted_just_after_the_end_of_the_wait_are_not_lost() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, LockManager::builder()).await;
    let semaphore = locks.plain_semaphore("s");
    semaphore.try_set_permits(1).await.unwrap();
    proxy.delay(Direction::Replies, 60 * MS);
    let taken = semaphore.permits(1).wait(20 * MS).acquire().await;
    taken.expect("the answer was waited for");
    semaphore.release(1).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_not_answered_is_unknown_and_sent_once() {
    let server = RedisServer::start();
    // The call timeout is long enough for a busy machine: what reaches the server later than that is refused, and not
    // done.
    let (proxy, locks) =
        behind_a_proxy(&server, LockManager::builder().call_timeout(1_000 * MS)).await;
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
    let answered = async || semaphore.available().await.is_ok();
    eventually("the store answers again", answered).await;
    assert_eq!(semaphore.available().await.unwrap(), 10 - 2 * 2 + 2);
    assert_eq!(latch.count().await.unwrap(), 3);
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_ends_no_wait() {
    let server = RedisServer::start();
    let (proxy, locks) =
        behind_a_proxy(&server, LockManager::builder().call_timeout(200 * MS)).await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    other.latch("l").try_set_count(1).await.unwrap();
    let latch = locks.latch("l");
    let waiting = latch.clone();
    let waiting = asleep(&proxy, async move { waiting.opened().wait(LONG).await }).await;
    proxy.go_down();
    // This caller is told what the caller at the head last heard. The head looks again after 1.2 s at the latest.
    let (refused, _) = took(latch.opened().wait(3_000 * MS).into_future()).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(!waiting.is_finished());
    proxy.refuse(false);
    other.latch("l").count_down().await.unwrap();
    let (opened, waited) = took(waiting).await;
    opened.unwrap().unwrap();
    assert!(waited < CAP + 1_000 * MS, "{waited:?}");
}

#[tokio::test]
async fn two_hundred_who_wait_for_a_latch_ask_as_one() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
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
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, LockManager::builder()).await;
    let latch = locks.latch("l");
    latch.try_set_count(2).await.unwrap();
    latch.count_down().await.unwrap();
    proxy.delay(Direction::Replies, 500 * MS);
    let sent = proxy.requests();
    let counting = tokio::spawn(async move { latch.count_down().await });
    eventually("it is on its way", async || proxy.requests() > sent).await;
    locks.shutdown().await;
    assert_eq!(counting.await.unwrap().unwrap(), 0);
}
