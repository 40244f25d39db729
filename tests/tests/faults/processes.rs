//! Tests of holder processes that are killed or frozen: others wait for the lease and no longer, and a holder that was
//! asleep beyond its lease does nothing when it wakes.

use std::time::{Duration, Instant};

use lock_runtime::TryAcquire;
use rustix::process::Signal;
use tests::faults::{asleep, behind_a_proxy, told};
use tests::history::now_ns;
use tests::{RedisServer, Worker, answered, eventually};

const HOLDER: &str = env!("CARGO_BIN_EXE_holder");
const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

fn start(server: &RedisServer, lease: &str) -> (Worker, u64) {
    let worker = Worker::start(HOLDER, &["step", &server.url(), "k", lease]);
    let line = worker.line().expect("the holder holds");
    let token = line.strip_prefix("held ").expect("it says so");
    (worker, token.parse().expect("a token"))
}

fn stamp(line: &str, what: &str) -> Option<u64> {
    line.strip_prefix(what)?.trim().parse().ok()
}

#[tokio::test]
async fn a_killed_holders_lock_is_had_when_its_lease_is_over() {
    let server = RedisServer::start();
    let (mut holder, token) = start(&server, "15000");
    // The end of the lease is all that wakes the waiter.
    let (proxy, locks) = behind_a_proxy(&server, told()).await;
    let waiting = asleep(&proxy, locks.mutex("k").wait(4 * LONG).acquire()).await;
    holder.kill9();
    let killed = Instant::now();
    let left = Duration::from_millis(server.pttl("lock:k").unsigned_abs());
    let guard = waiting.await.unwrap().unwrap();
    let waited = killed.elapsed();
    assert!(waited + 5 * MS >= left, "{waited:?} of {left:?}: too early");
    assert!(guard.fencing_token().unwrap().get() > token);
    guard.release().await.unwrap();
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_holder_frozen_beyond_its_lease_does_not_take_another_step() {
    let server = RedisServer::start();
    let (holder, token) = start(&server, "15000");
    let locks = tests::connected(&server.url()).await;
    for _ in 0..20 {
        let line = holder.line().expect("it works");
        assert!(
            !line.starts_with("ended") && !line.starts_with("over"),
            "{line}"
        );
    }
    holder.freeze();
    let guard = locks.mutex("k").wait(4 * LONG).acquire().await.unwrap();
    let taken = now_ns();
    assert!(guard.fencing_token().unwrap().get() > token);
    holder.signal(Signal::CONT);
    let (mut ended, mut over) = (None, None);
    while ended.is_none() || over.is_none() {
        let line = holder.line().expect("it ends in order");
        for what in ["step ", "sure "] {
            assert!(
                stamp(&line, what).is_none_or(|at| at < taken),
                "after the takeover: {line}"
            );
        }
        over = over.or(stamp(&line, "over "));
        ended = ended.or(line.strip_prefix("ended ").map(str::to_owned));
    }
    let ended = ended.unwrap();
    assert!(
        ended.contains("Lost") && ended.contains("completed: false"),
        "{ended}"
    );
    // The clean-up of the old holder does not touch the next holder's lock.
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_frozen_for_less_than_its_lease_goes_on() {
    let server = RedisServer::start();
    let (holder, _) = start(&server, "24000");
    let locks = tests::connected(&server.url()).await;
    holder.freeze();
    let left = || server.pttl("lock:k");
    eventually("more than a cadence was missed", async || left() < 15_000).await;
    let tried = answered(async || locks.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
    holder.signal(Signal::CONT);
    eventually("it renews", async || left() > 15_000).await;
    let woke = now_ns();
    loop {
        let line = holder.line().expect("it works");
        assert!(!line.starts_with("ended"), "{line}");
        if stamp(&line, "step ").is_some_and(|at| at > woke) {
            break;
        }
    }
}

#[tokio::test]
async fn each_killed_holder_blocks_for_at_most_its_lease() {
    let server = RedisServer::start();
    let mut last = 0;
    for _ in 0..3 {
        let (mut holder, token) = start(&server, "1000");
        assert!(token > last, "{token} after {last}");
        last = token;
        holder.kill9();
        // The next one waits no longer than this. It is -2 if the lease is over already.
        let left = server.pttl("lock:k");
        assert!(left == -2 || (0..=1_000).contains(&left), "{left}");
    }
}
