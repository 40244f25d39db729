//! Tests of `plain_semaphore` and `getSemaphore`: they are one number of permits that nobody is known to hold.

use lock_runtime::TryAcquire;

use crate::pair::{LONG, PUSHED, Pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_permits_of_both_are_counted_together() {
    let pair = Pair::start().await;
    let ours = pair.rust.plain_semaphore("s");
    assert!(ours.try_set_permits(3).await.unwrap());
    assert_eq!(pair.java.ask("semaphore-set s 7").await, "false");
    assert_eq!(pair.java.ask("semaphore-acquire s 2 0").await, "true");
    assert!(!matches!(
        ours.permits(2).try_acquire().await.unwrap(),
        TryAcquire::Acquired(())
    ));
    assert!(matches!(
        ours.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Acquired(())
    ));
    assert_eq!(pair.java.ask("semaphore-acquire s 1 0").await, "false");
    // Either side gives back what the other took.
    ours.release(2).await.unwrap();
    assert_eq!(pair.java.ask("semaphore-available s").await, "2");
    assert_eq!(pair.java.ask("semaphore-release s 1").await, "ok");
    assert_eq!(ours.available().await.unwrap(), 3);
    assert_eq!(pair.java.ask("semaphore-drain s").await, "3");
    assert!(!matches!(
        ours.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Acquired(())
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_than_none_are_survived_by_waiters_of_both() {
    let pair = Pair::start().await;
    let ours = pair.rust.plain_semaphore("s");
    ours.try_set_permits(1).await.unwrap();
    assert!(matches!(
        ours.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Acquired(())
    ));
    let java_waits = pair
        .java
        .tell(format!("semaphore-acquire s 1 {}", LONG.as_millis()));
    let rust_waits = tokio::spawn(async move { ours.permits(1).wait(LONG).acquire().await });
    // Java publishes the number, which is below zero then.
    assert_eq!(pair.java.ask("semaphore-add s -2").await, "ok");
    let ours = pair.rust.plain_semaphore("s");
    assert_eq!(ours.available().await.unwrap(), -2);
    ours.add_permits(4).await.unwrap();
    assert_eq!(java_waits.await.unwrap(), "true");
    rust_waits.await.unwrap().unwrap();
    assert_eq!(ours.available().await.unwrap(), 0);
    // Redisson 3.52 complains of the number below zero that it published itself, if its waiter listened by then.
    let complaints = pair.java.complaints();
    let of_itself = complaints.contains("SemaphorePubSub.onMessage");
    assert!(complaints.is_empty() || of_itself, "{complaints}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_permit_given_back_is_had_within_one_push() {
    let pair = Pair::start().await;
    let ours = pair.told.plain_semaphore("s");
    ours.try_set_permits(1).await.unwrap();
    assert!(matches!(
        ours.permits(1).try_acquire().await.unwrap(),
        TryAcquire::Acquired(())
    ));
    for _ in 0..5 {
        let wait = format!("semaphore-acquire s 1 {}", PUSHED.as_millis());
        let waiting = pair.refused_twice("get", || pair.java.tell(&wait)).await;
        ours.release(1).await.unwrap();
        assert_eq!(waiting.await.unwrap(), "true");

        let waiter = ours.clone();
        let begin = || tokio::spawn(async move { waiter.permits(1).wait(PUSHED).acquire().await });
        let waiting = pair.refused_twice("get", begin).await;
        assert_eq!(pair.java.ask("semaphore-release s 1").await, "ok");
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(pair.java.complaints(), "");
}
