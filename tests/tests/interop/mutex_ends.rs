//! Tests of how a mutex's hold ends other than by its release: expiry, crashes, force; and of how renewal keeps it.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LostReason};
use tests::eventually;

use crate::pair::{LASTING, LONG, MS, OUTLASTING, PUSHED, Pair, with_the_lease};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_has_the_lock_when_javas_fixed_lease_is_over() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    java.lock_for(2_000 * MS, "a").await;
    let (since, left) = (Instant::now(), left(&pair));
    let guard = pair.rust.mutex("k").wait(LONG).acquire().await.unwrap();
    with_the_lease(since, left);
    // Java comes late, and does no harm.
    java.unlock_is_refused("a").await;
    assert_eq!(java.hold_count("a").await, 0);
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_has_the_lock_when_our_fixed_lease_is_over() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    let request = pair.rust.mutex("k").lease(2_000 * MS).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    let (since, left) = (Instant::now(), left(&pair));
    assert_eq!(java.begin(LONG, "a").await.unwrap(), "true");
    with_the_lease(since, left);
    assert!(!guard.is_held());
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    assert_eq!(java.hold_count("a").await, 1);
    java.unlock("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_has_the_lock_when_a_killed_java_clients_lease_is_over() {
    let mut pair = Pair::with_watchdog(LASTING).await;
    pair.java.mutex("k").lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.told.mutex("k").wait(LONG).acquire()))
        .await;
    pair.java.kill9();
    let (since, left) = (Instant::now(), left(&pair));
    waiting.await.unwrap().unwrap().release().await.unwrap();
    with_the_lease(since, left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_waiter_that_is_killed_leaves_the_lock_free() {
    let mut pair = Pair::start().await;
    let guard = pair.rust.mutex("k").acquire().await.unwrap();
    let waiting = pair
        .asleep(|| pair.java.mutex("k").begin(PUSHED, "a"))
        .await;
    pair.java.kill9();
    waiting.await.unwrap_err();
    // Its last question may still be on its way, and would take the lock.
    eventually("none of its connections is left", async || {
        let clients = pair.server.clients();
        !clients.iter().any(|client| client.contains(" name=java "))
    })
    .await;
    guard.release().await.unwrap();
    let next = pair.rust.mutex("k").try_acquire().await.unwrap();
    next.expect("free").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_forced_by_java_is_lost_at_our_guards_next_check() {
    let pair = Pair::start().await;
    for (name, renews) in [("renewed", true), ("fixed", false)] {
        let request = pair.rust.mutex(name).lease(LASTING).auto_renew(renews);
        let guard = request.acquire().await.unwrap();
        let java = pair.java.mutex(name);
        assert!(java.force_unlock().await);
        // Without a check, it would be lost by the end of its lease.
        assert_eq!(guard.lost().wait().await, LostReason::Refused);
        assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
        assert!(!java.force_unlock().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_java_forces_wakes_our_waiter_within_one_push() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    java.lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.told.mutex("k").wait(PUSHED).acquire()))
        .await;
    assert!(java.force_unlock().await);
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_forced_release_ends_javas_hold_and_wakes_its_waiter() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    java.lock("a").await;
    java.lock("a").await;
    let waiting = pair.asleep(|| java.begin(PUSHED, "b")).await;
    assert!(pair.rust.force_release("k").await.unwrap());
    assert_eq!(waiting.await.unwrap(), "true");
    assert!(!java.is_held("a").await);
    assert_eq!(java.hold_count("a").await, 0);
    java.unlock_is_refused("a").await;
    assert!(java.is_held("b").await);
    java.unlock("b").await;
    assert!(!pair.rust.force_release("k").await.unwrap());
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_watchdog_keeps_us_out_and_shows_in_inspect() {
    let pair = Pair::with_watchdog(LASTING).await;
    let java = pair.java.mutex("k");
    java.lock("a").await;
    let busy = pair.rust.mutex("k").wait(OUTLASTING).acquire().await;
    assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
    let mut last = Duration::MAX;
    eventually("the lease grows", async || {
        let ttl = pair.rust.inspect("k").await.unwrap().ttl.unwrap();
        let grew = ttl > last.saturating_add(200 * MS);
        last = ttl;
        grew
    })
    .await;
    java.unlock("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_watchdog_keeps_java_out() {
    let pair = Pair::start().await;
    let request = pair.rust.mutex("k").lease(LASTING);
    let guard = request.acquire().await.unwrap();
    let java = pair.java.mutex("k");
    assert_eq!(java.begin(OUTLASTING, "a").await.unwrap(), "false");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(java.try_lock("a").await);
}

fn left(pair: &Pair) -> Duration {
    Duration::from_millis(pair.server.pttl("k").unsigned_abs())
}
