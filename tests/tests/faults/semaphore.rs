//! Tests of leased permits when holders die, replies and messages are lost, or futures are dropped; and of renewals in
//! batches.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, LostReason, Semaphore, TryAcquire};
use tests::faults::{asleep, at_each_poll, behind_a_proxy, connected, poll_times, told};
use tests::{CommandStats, Direction, RedisServer, Then, Worker, eventually, eventually_within};

const HOLDER: &str = env!("CARGO_BIN_EXE_holder");
const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The time of a call whose answer is lost. Other answers come earlier on a busy machine, too.
const CALL: Duration = Duration::from_secs(8);
/// The lease of permits that do not come back by its end.
const HOUR: Duration = Duration::from_secs(60 * 60);
const LEASES: &str = "{lock:s}:timeout";

async fn semaphore(locks: &LockManager, permits: u64) -> Semaphore {
    let semaphore = locks.semaphore("s");
    semaphore.try_set_permits(permits).await.unwrap();
    semaphore
}

fn leased(server: &RedisServer) -> i64 {
    server.query(&["ZCARD", LEASES])
}

/// Returns whether it is the script that leases permits, or the one that gives them back: its keys and its number of
/// arguments tell.
fn is_call(args: &[&[u8]], arguments: usize) -> bool {
    let leases = args.get(4).is_some_and(|key| *key == LEASES.as_bytes());
    leases && args[0] == b"EVALSHA" && args.len() == 5 + arguments
}

fn is_acquire(args: &[&[u8]]) -> bool {
    is_call(args, 4)
}

fn is_release(args: &[&[u8]]) -> bool {
    is_call(args, 2) && args[5].len().is_multiple_of(16) && args[5].len() < 48
}

#[tokio::test]
async fn a_killed_holders_permits_come_back_when_its_lease_is_over() {
    let server = RedisServer::start();
    // The end of the lease is all that wakes the waiter.
    let (proxy, locks) = behind_a_proxy(&server, told()).await;
    let semaphore = semaphore(&locks, 3).await;
    let mut holder = Worker::start(HOLDER, &["permits", &server.url(), "s", "2", "15000"]);
    holder.expect_line("held");
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let waiting = asleep(&proxy, semaphore.permits(3).wait(4 * LONG).acquire()).await;
    holder.kill9();
    let leases: Vec<(Vec<u8>, u64)> = server.query(&["ZRANGE", LEASES, "0", "-1", "WITHSCORES"]);
    let over = leases[0].1;
    let guard = waiting.await.unwrap().unwrap();
    let now = server.time_ms();
    assert!(now >= over, "{over}: {now}");
    assert_eq!((guard.permits(), leased(&server)), (3, 3));
    guard.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 3);
    semaphore.delete().await.unwrap();
    drop((locks, semaphore));
    server.assert_deserted().await;
}

#[tokio::test]
async fn an_operator_sees_and_frees_permits_after_a_lost_count() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let semaphore = semaphore(&locks, 3).await;
    let permits = semaphore.permits(2).lease(20 * LONG);
    let guard = permits.acquire().await.unwrap();
    assert_eq!(server.ask::<i64>(&["DEL", "lock:s"]).await, 1);
    let seen = locks.inspect("s").await.unwrap();
    assert!(seen.held, "{seen:?}");
    assert_eq!((seen.count, seen.available), (2, None));
    assert!(locks.force_release("s").await.unwrap());
    assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
    assert_eq!(leased(&server), 0);
    assert!(!locks.inspect("s").await.unwrap().held);
    assert!(!locks.force_release("s").await.unwrap());
    drop((guard, locks, semaphore));
    server.assert_deserted().await;
}

#[tokio::test]
async fn futures_dropped_at_each_of_their_polls_leave_no_permit_taken() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder().lease(HOUR)).await;
    let other = tests::connected(&server.url()).await;
    let semaphore = semaphore(&other, 3).await;
    proxy.delay(Direction::Requests, 2 * MS);
    proxy.delay(Direction::Replies, 2 * MS);
    for busy in [false, true] {
        at_each_poll(async |polls, leave| {
            let in_the_way = match busy {
                true => Some(semaphore.permits(2).acquire().await.unwrap()),
                false => None,
            };
            let cycle = async {
                let request = locks.semaphore("s").permits(2).wait(LONG);
                let guard = request.acquire().await.unwrap();
                guard.release().await.unwrap();
            };
            let releasing = async {
                tokio::time::sleep(20 * MS).await;
                drop(in_the_way);
            };
            let (done, ()) = tokio::join!(poll_times(cycle, polls, leave), releasing);
            eventually("all permits are free", async || {
                semaphore.available().await.unwrap() == 3 && leased(&server) == 0
            })
            .await;
            assert_eq!(locks.inspect("s").await.unwrap().local_waiters, 0);
            done.is_some()
        })
        .await;
    }
}

#[tokio::test]
async fn an_acquire_whose_reply_is_lost_takes_its_permits_once() {
    let server = RedisServer::start();
    for then in [Then::Cut, Then::Silence] {
        let builder = tests::builder().call_timeout(CALL).lease(HOUR);
        let (proxy, locks) = behind_a_proxy(&server, builder).await;
        let semaphore = semaphore(&locks, 3).await;
        proxy.lose_reply_to(is_acquire, then);
        let guard = semaphore.permits(2).wait(LONG).acquire().await.unwrap();
        assert!(proxy.trap_sprung());
        eventually("what nobody was told of came back", async || {
            semaphore.available().await.unwrap() == 1 && leased(&server) == 2
        })
        .await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_gives_its_permits_back_once() {
    let server = RedisServer::start();
    for then in [Then::Cut, Then::Silence] {
        let builder = tests::builder().call_timeout(CALL).lease(HOUR);
        let (proxy, locks) = behind_a_proxy(&server, builder).await;
        let semaphore = semaphore(&locks, 3).await;
        let guard = semaphore.permits(2).acquire().await.unwrap();
        let kept = semaphore.permits(1).acquire().await.unwrap();
        proxy.lose_reply_to(is_release, then);
        drop(guard);
        eventually("the reply was lost", async || proxy.trap_sprung()).await;
        locks.shutdown().await;
        drop(kept);
        eventually("all that was sent has come", async || {
            proxy.open_connections() == 0
        })
        .await;
        let other = tests::connected(&server.url()).await;
        let free = other.semaphore("s").available().await.unwrap();
        assert_eq!(free + leased(&server), 3);
        assert!(free >= 2);
        other.semaphore("s").delete().await.unwrap();
    }
}

#[tokio::test]
async fn permits_that_come_back_without_a_message_are_found() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let other = tests::connected(&server.url()).await;
    let semaphore = semaphore(&other, 1).await;
    // The leases outlast the waits, so their ends help nobody.
    let take = || semaphore.permits(1).lease(20 * LONG).acquire();
    let guard = take().await.unwrap();
    let waiting = asleep(&proxy, locks.semaphore("s").permits(1).wait(LONG).acquire()).await;
    let _: i64 = server.query(&["INCRBY", "lock:s", "1"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    proxy.lose_messages(true);
    let second = take().await.unwrap();
    let waiting = asleep(&proxy, locks.semaphore("s").permits(1).wait(LONG).acquire()).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
async fn permits_leased_by_redisson_count_until_their_lease_is_over() {
    let server = RedisServer::start();
    // The end of the lease is all that wakes the waiter.
    let (proxy, locks) = behind_a_proxy(&server, told()).await;
    let semaphore = semaphore(&locks, 2).await;
    let (soon, never) = (server.time_ms() + 15_000, 922_337_203_685_477_u64);
    let _: i64 = server.query(&["DECRBY", "lock:s", "2"]);
    let _: i64 = server.query(&["ZADD", LEASES, &never.to_string(), "aaaaaaaaaaaaaaaa"]);
    let _: i64 = server.query(&["ZADD", LEASES, &soon.to_string(), "bbbbbbbbbbbbbbbb"]);
    let info = locks.inspect("s").await.unwrap();
    assert_eq!((info.count, info.available), (2, Some(0)));
    assert!(info.ttl.unwrap() <= 15_000 * MS);
    let waiting = asleep(&proxy, semaphore.permits(1).wait(4 * LONG).acquire()).await;
    let guard = waiting.await.unwrap().unwrap();
    let now = server.time_ms();
    assert!(now >= soon, "{soon}: {now}");
    assert!(matches!(
        semaphore.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(locks.inspect("s").await.unwrap().count, 2);
    guard.release().await.unwrap();
    semaphore.delete().await.unwrap();
}

#[tokio::test]
async fn an_outage_beyond_the_lease_loses_permits_but_adds_none() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let other = tests::connected(&server.url()).await;
    let semaphore = semaphore(&other, 2).await;
    let guard = locks
        .semaphore("s")
        .permits(2)
        .lease(4_000 * MS)
        .acquire()
        .await
        .unwrap();
    proxy.go_down();
    let next = semaphore.permits(2).wait(LONG).acquire().await.unwrap();
    assert!(!guard.is_held(), "it knew before anybody else was admitted");
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    proxy.refuse(false);
    drop(guard);
    drop(locks);
    eventually("the late release has come and gone", async || {
        proxy.open_connections() == 0
    })
    .await;
    assert!(next.is_held());
    assert_eq!(
        (semaphore.available().await.unwrap(), leased(&server)),
        (0, 2)
    );
    next.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 2);
}

#[tokio::test]
async fn leased_permits_are_renewed_in_full_batches() {
    const MANY: u64 = 1_024;
    const LEASE: Duration = Duration::from_secs(18);
    let server = RedisServer::start();
    let builder = tests::builder().call_timeout(LONG);
    let locks = connected(builder, &server.url()).await;
    let semaphore = semaphore(&locks, MANY).await;
    let (mut guards, asked) = (Vec::new(), Instant::now());
    for _ in 0..MANY {
        guards.push(semaphore.permits(1).lease(LEASE).acquire().await.unwrap());
    }
    let acquiring = asked.elapsed();
    let before = CommandStats::of(&server);
    let mut seen = before.clone();
    // A renewal of one permit is one ZADD, so this number of them is two cadences, whenever they begin.
    eventually_within(2 * LONG, "each was renewed twice", async || {
        seen = CommandStats::of(&server);
        seen.since(&before).calls("zadd") >= 2 * MANY
    })
    .await;
    let done = seen.since(&before);
    // There are 16 if every batch is full. The last batches of a cadence may be cut short by when their holds began: a
    // batch has what is due within a thirtieth of the lease, and it may have taken longer to acquire them.
    let most = 24 + 2 * (acquiring.as_millis() / (LEASE / 30).as_millis()) as u64;
    let scripts = done.scripts();
    assert!(
        (16..=most).contains(&scripts),
        "{scripts} scripts for two renewals of {MANY}"
    );
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    eventually("all came back", async || {
        semaphore.available().await.unwrap() == MANY as i64
    })
    .await;
    semaphore.delete().await.unwrap();
}
