//! Tests of `getSpinLock`: it has the same key as a mutex, but its holder publishes nothing and its waiters do not
//! listen.

use lock_runtime::TryAcquire;
use std::time::{Duration, Instant};

use crate::pair::{LONG, MS, Pair};

/// The longest sleep of our waiters, and the time to wake on a busy machine.
const CAP: Duration = Duration::from_millis(1_200 + 300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_has_the_lock_within_its_cap_after_a_spin_lock_was_unlocked() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("spin", "k");
    java.lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.rust.mutex("k").wait(LONG).acquire()))
        .await;
    let released = Instant::now();
    java.unlock("a").await;
    let guard = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() < CAP, "{:?}", released.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spin_lock_waits_for_rust_and_then_keeps_it_out() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("spin", "k");
    let guard = pair.rust.mutex("k").acquire().await.unwrap();
    let waiting = java.begin(LONG, "a");
    assert!(!java.try_lock("b").await && !waiting.is_there());
    let released = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), "true");
    // The spin lock looks every 128 ms at the latest.
    assert!(released.elapsed() < 1_000 * MS, "{:?}", released.elapsed());
    assert!(matches!(
        pair.rust.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(pair.rust.inspect("k").await.unwrap().count, 1);
    java.unlock("a").await;
}
