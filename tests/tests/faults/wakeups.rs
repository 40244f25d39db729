//! Wake-up messages are hints: a waiter that misses one asks by itself in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason};
use redis::Value;
use tests::faults::{asleep, behind_a_proxy, connected, free_within, given_back, told, took};
use tests::stops::{STOP, in_one_of_a_few_rounds};
use tests::{CommandStats, Direction, RedisServer, eventually};
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(30);
/// The wait of a waiter that sleeps for no longer than the cap, about 1 s, and is served long before. A lease of [`HOUR`] ends
/// long after.
const WAIT: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn a_lost_message_costs_no_more_than_the_cap() {
    let server = RedisServer::start();
    let holder = tests::connected(&server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder()).await;
    proxy.lose_messages(true);
    for _ in 0..2 {
        let before = proxy.messages();
        let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
        let waiting = asleep(&proxy, waiter.mutex("k").wait(WAIT).acquire()).await;
        guard.release().await.unwrap();
        let (next, waited) = took(waiting).await;
        eventually("there was one, and it was lost", async || {
            proxy.messages() == before + 1
        })
        .await;
        assert!(waited < SOON, "{waited:?}");
        next.unwrap().unwrap().release().await.unwrap();
        eventually("the waiter's own release was published, too", async || {
            proxy.messages() == before + 2
        })
        .await;
    }
}

/// A release reserves the lock for the first process on the list, which does not hear of it. If each left without another
/// look, the lock would be reserved for one after the other, and none would ever have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_short_waits_get_turns_without_messages() {
    const PROCESSES: usize = 4;
    const TURNS: u64 = 3;
    let server = RedisServer::start();
    let (mut proxies, mut clients) = (Vec::new(), JoinSet::new());
    let turns: Arc<[AtomicU64; PROCESSES]> = Arc::default();
    for process in 0..PROCESSES {
        let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
        proxy.lose_messages(true);
        proxies.push(proxy);
        let turns = turns.clone();
        clients.spawn(async move {
            while turns.iter().any(|turns| turns.load(Relaxed) < TURNS) {
                let short = locks.mutex("k").wait(Duration::from_millis(500));
                match short.acquire().await {
                    Ok(guard) => {
                        turns[process].fetch_add(1, Relaxed);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        given_back(guard).await;
                    }
                    // A busy machine may take longer for an answer than the wait lasts.
                    Err(LockError::Busy { .. } | LockError::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    let all = async {
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    };
    let all = tokio::time::timeout(WAIT, all).await;
    all.expect("each process has the lock again and again");
}

/// Readers come all the time, and each stays for a shorter time than the writer sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_messages_readers_do_not_keep_a_writer_out() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let (proxy, writes) = behind_a_proxy(&server, tests::builder()).await;
    proxy.lose_messages(true);
    let reads = Arc::new(AtomicU64::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..6 {
        let (locks, reads) = (locks.clone(), reads.clone());
        readers.spawn(async move {
            loop {
                let guard = locks.read("k").wait(WAIT).acquire().await.unwrap();
                reads.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(120)).await;
                given_back(guard).await;
            }
        });
    }
    for _ in 0..3 {
        let before = reads.load(Relaxed);
        eventually("others read", async || reads.load(Relaxed) > before + 12).await;
        let writer = writes.write("k").wait(WAIT).acquire().await.unwrap();
        given_back(writer).await;
    }
}

#[tokio::test]
async fn a_lock_deleted_without_a_message_costs_no_more_than_the_cap() {
    let server = RedisServer::start();
    let holder = tests::connected(&server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder()).await;
    let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(WAIT).acquire()).await;
    assert_eq!(server.query::<i64>(&["DEL", "lock:k"]), 1);
    let (next, waited) = took(waiting).await;
    assert!(waited < SOON, "{waited:?}");
    assert!(guard.release().await.is_err(), "the hold was lost");
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_cut_subscription_is_renewed_and_all_waiters_look_again() {
    let server = RedisServer::start();
    let holder = connected(told(), &server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, told()).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").acquire()).await;
    proxy.lose_messages(true);
    guard.release().await.unwrap();
    eventually("the message is lost", async || proxy.messages() == 1).await;
    let _: Value = server.query(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();

    proxy.lose_messages(false);
    is_woken(&holder, &waiter).await;
    drop((holder, waiter));
    server.assert_deserted().await;
}

/// A proxy may keep a client's connection and open another one to the server. The client is told nothing of that.
#[tokio::test]
async fn subscriptions_lost_behind_an_open_connection_are_renewed() {
    let what = "the clients keep their connections";
    in_one_of_a_few_rounds(Duration::ZERO, what, are_renewed_behind_an_open_connection).await;
}

/// Returns false if a client took a slow server for one that is away, and has opened another connection.
async fn are_renewed_behind_an_open_connection() -> bool {
    const CONTROL: &str = "lock:control:released";
    let server = RedisServer::start();
    let holder = connected(told(), &server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, told()).await;
    let forced = waiter.mutex("forced").lease(HOUR).acquire().await.unwrap();
    let guard = holder.mutex("k").acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").acquire()).await;
    eventually("both managers listen", async || {
        server.subscribers(CONTROL) == 2
    })
    .await;
    let (channels, connections) = (server.channels(), proxy.connections());
    for replaced in [2, 4] {
        // Both managers have looked once more, and found that all is well.
        let looks = || CommandStats::of(&server).calls("subscribe");
        let enough = looks() + 3;
        eventually("it looks", async || looks() >= enough).await;
        proxy.replace_servers();
        eventually("both connections to the server are new", async || {
            proxy.replaced() == replaced && server.clients().len() == 4
        })
        .await;
        eventually("it listens again", async || {
            server.channels() == channels && server.subscribers(CONTROL) == 2
        })
        .await;
    }
    if proxy.connections() != connections {
        return false;
    }
    assert!(holder.force_release("forced").await.unwrap());
    // By its renewal it would be `Refused`.
    assert_eq!(forced.lost().wait().await, LostReason::ForceReleased);
    guard.release().await.unwrap();
    given_back(waiting.await.unwrap().unwrap()).await;
    is_woken(&holder, &waiter).await;
    drop((holder, waiter, forced));
    server.assert_deserted().await;
    true
}

#[tokio::test]
async fn without_the_right_to_subscribe_waiting_is_slower_and_works() {
    let rights = ">secret ~* &* +@all -subscribe";
    let server = RedisServer::builder()
        .user("deaf", &format!("on {rights}"))
        .start();
    let holder = tests::connected(&server.url()).await;
    let waiter = tests::connected(&server.url_with("deaf", "secret")).await;
    let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.mutex("k").wait(WAIT).acquire());
    eventually("it waits", async || {
        waiter.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    // It asks once more when it has not been able to listen.
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    let (next, waited) = took(waiting).await;
    assert!(waited < SOON, "{waited:?}");
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn without_the_right_to_publish_waiting_is_slower_and_works() {
    let rights = ">secret ~* &* +@all -publish";
    let server = RedisServer::builder()
        .user("mute", &format!("on {rights}"))
        .start();
    let holder = tests::connected(&server.url_with("mute", "secret")).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder()).await;
    let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(WAIT).acquire()).await;
    guard.release().await.unwrap();
    let (next, waited) = took(waiting).await;
    assert!(waited < SOON, "{waited:?}");
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn messages_that_mean_nothing_give_nobody_the_lock() {
    let server = RedisServer::start();
    let holder = tests::connected(&server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder()).await;
    let guard = holder.mutex("k").lease(HOUR).acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(WAIT).acquire()).await;
    let channels = server.channels();
    assert!(channels.len() >= 2, "{channels:?}");
    let huge = "x".repeat(100_000);
    for channel in &channels {
        for payload in ["", "0", "1", "\0\r\n", "*1\r\n", &"f".repeat(40), &huge] {
            server.query::<i64>(&["PUBLISH", channel, payload]);
        }
    }
    eventually("they came in", async || proxy.messages() >= 14).await;
    free_within(&waiter, "other", LONG).await;
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    drop((holder, waiter));
    server.assert_deserted().await;
}

/// A subscription per waiter, or a pool of them, runs out in other implementations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_on_a_thousand_keys_share_one_subscribed_connection() {
    const KEYS: usize = 1_000;
    let server = RedisServer::start();
    let builder = told().call_timeout(LONG);
    let holder = connected(builder.clone(), &server.url()).await;
    let waiter = connected(builder, &server.url()).await;
    // What a message gives lasts for a second at first, and a busy machine may need longer for a thousand of them.
    let is_round_without_a_stop = async || {
        let lost = lost_of_a_round(&server, &holder, &waiter, KEYS).await;
        lost <= KEYS / 100
    };
    in_one_of_a_few_rounds(STOP, "nearly all are kept", is_round_without_a_stop).await;
    drop((holder, waiter));
    server.assert_deserted().await;
}

/// Lets a waiter of each key be served by a message, and returns how many of them had lost what that gave them.
async fn lost_of_a_round(
    server: &RedisServer,
    holder: &LockManager,
    waiter: &LockManager,
    keys: usize,
) -> usize {
    let mut guards = Vec::new();
    for key in 0..keys {
        guards.push(holder.mutex(key.to_string()).acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..keys)
        .map(|key| tokio::spawn(waiter.mutex(key.to_string()).acquire()))
        .collect();
    eventually("all are subscribed to", async || {
        server.channels().len() > keys && waiter.snapshot().waited_for.len() == keys
    })
    .await;
    assert_eq!(server.clients().len(), 4, "a manager has two connections");
    drop(guards);
    let mut lost = 0;
    for waiting in waiting {
        match waiting.await.unwrap().unwrap().release().await {
            Ok(()) => {}
            Err(LockError::Lost { .. }) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_too_slow_for_its_messages_is_cut_yet_served() {
    let server = RedisServer::builder()
        .line("client-output-buffer-limit pubsub 1mb 0 0")
        .start();
    let holder = connected(told(), &server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, told()).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").acquire()).await;
    let channels = server.channels();
    let wakes = channels
        .iter()
        .find(|name| !name.contains("control"))
        .unwrap();
    let before = server.subscribers(wakes);
    assert_eq!(before, 1);
    proxy.stall(Direction::Replies, true);
    // Bytes that the sockets on the way take do not count: the server cuts clients to which it cannot write.
    let noise = "0".repeat(100_000);
    eventually("the server cuts its subscriber", async || {
        for _ in 0..20 {
            let _: i64 = server.query(&["PUBLISH", wakes, &noise]);
        }
        server.subscribers(wakes) == 0
    })
    .await;
    guard.release().await.unwrap();
    proxy.stall(Direction::Replies, false);
    given_back(waiting.await.unwrap().unwrap()).await;
    is_woken(&holder, &waiter).await;
    drop((holder, waiter));
    server.assert_deserted().await;
}

/// Asserts that the renewed subscription works: a waiter is told of a release, for which both managers are made.
async fn is_woken(holder: &LockManager, waiter: &LockManager) {
    let guard = holder.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.mutex("k").acquire());
    eventually("it waits", async || {
        waiter.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    // If it listened to other channels only, it asks once more.
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    given_back(waiting.await.unwrap().unwrap()).await;
}
