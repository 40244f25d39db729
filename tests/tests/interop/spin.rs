//! Tests of `getSpinLock`: it has the same key as a mutex, but its holder publishes nothing and its waiters do not
//! listen.

use lock_runtime::TryAcquire;

use crate::pair::{LONG, PUSHED, Pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_takes_a_spin_lock_within_its_cap_after_the_unlock() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("spin", "k");
    java.lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.rust.mutex("k").wait(PUSHED).acquire()))
        .await;
    java.unlock("a").await;
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spin_lock_waits_for_rust_and_then_keeps_it_out() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("spin", "k");
    let guard = pair.rust.mutex("k").acquire().await.unwrap();
    let waiting = java.begin(LONG, "a");
    assert!(!java.try_lock("b").await && !waiting.is_there());
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), "true");
    assert!(matches!(
        pair.rust.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(pair.rust.inspect("k").await.unwrap().count, 1);
    java.unlock("a").await;
}
