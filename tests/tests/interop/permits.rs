//! Tests of `semaphore` and `getPermitExpirableSemaphore`: they are one pool of leased permits.

use lock_runtime::TryAcquire;
use std::time::{Duration, Instant};

use tests::JavaPeer;

use crate::pair::{LASTING, LONG, MS, OUTLASTING, PUSHED, Pair};

async fn java_takes(java: &JavaPeer, lease: Duration) -> String {
    java.ask(format!("permits-acquire s 0 {}", lease.as_millis()))
        .await
}

async fn java_gives(java: &JavaPeer, permit: &str) -> String {
    java.ask(format!("permits-release s {permit}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_both_are_counted_together() {
    let pair = Pair::start().await;
    let ours = pair.rust.semaphore("s");
    assert!(ours.try_set_permits(3).await.unwrap());
    assert_eq!(pair.java.ask("permits-set s 7").await, "false");
    let permit = java_takes(&pair.java, 60_000 * MS).await;
    assert_eq!(permit.len(), 32, "{permit}");
    let guard = ours.permits(2).acquire().await.unwrap();
    assert_eq!(java_takes(&pair.java, 60_000 * MS).await, "null");
    assert!(matches!(
        ours.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    for (command, expected) in [("available", "0"), ("total", "3"), ("taken", "3")] {
        assert_eq!(
            pair.java.ask(format!("permits-{command} s")).await,
            expected,
            "{command}"
        );
    }
    guard.release().await.unwrap();
    assert_eq!(pair.java.ask("permits-available s").await, "2");
    assert_eq!(java_gives(&pair.java, &permit).await, "true");
    assert_eq!(java_gives(&pair.java, &permit).await, "false");
    assert_eq!(ours.available().await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_given_back_is_had_within_one_push() {
    let pair = Pair::start().await;
    let ours = pair.told.semaphore("s");
    ours.try_set_permits(1).await.unwrap();
    for _ in 0..5 {
        let permit = java_takes(&pair.java, 60_000 * MS).await;
        let begin = || tokio::spawn(ours.permits(1).wait(PUSHED).acquire());
        let waiting = pair.refused_twice("zrange", begin).await;
        assert_eq!(java_gives(&pair.java, &permit).await, "true");
        let guard = waiting.await.unwrap().unwrap();

        let wait = format!("permits-acquire s {} 60000", PUSHED.as_millis());
        let waiting = pair.refused_twice("zrange", || pair.java.tell(&wait)).await;
        guard.release().await.unwrap();
        let permit = waiting.await.unwrap();
        assert_eq!(java_gives(&pair.java, &permit).await, "true");
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_killed_java_client_come_back_with_their_lease() {
    let mut pair = Pair::start().await;
    let ours = pair.rust.semaphore("s");
    ours.try_set_permits(2).await.unwrap();
    let begun = Instant::now();
    java_takes(&pair.java, LASTING).await;
    java_takes(&pair.java, LASTING).await;
    pair.java.kill9();
    assert!(matches!(
        ours.permits(2).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    let guard = ours.permits(2).wait(LONG).acquire().await.unwrap();
    let waited = begun.elapsed();
    assert!(waited > LASTING - 100 * MS, "{waited:?}");
    guard.release().await.unwrap();
    assert_eq!(ours.available().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_permit_of_ours_is_not_given_to_java() {
    let pair = Pair::start().await;
    let ours = pair.rust.semaphore("s");
    ours.try_set_permits(1).await.unwrap();
    let guard = ours.permits(1).lease(LASTING).acquire().await.unwrap();
    let wait = format!("permits-acquire s {} 60000", OUTLASTING.as_millis());
    assert_eq!(pair.java.ask(wait).await, "null");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_ne!(java_takes(&pair.java, 60_000 * MS).await, "null");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_added_by_either_side_are_everybodys() {
    let pair = Pair::start().await;
    let ours = pair.rust.semaphore("s");
    assert_eq!(pair.java.ask("permits-set s 1").await, "true");
    assert!(!ours.try_set_permits(5).await.unwrap());
    ours.add_permits(2).await.unwrap();
    assert_eq!(pair.java.ask("permits-available s").await, "3");
    let guard = ours.permits(3).acquire().await.unwrap();
    assert_eq!(java_takes(&pair.java, 60_000 * MS).await, "null");
    guard.release().await.unwrap();
}
