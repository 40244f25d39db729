//! Tests of `latch` and `getCountDownLatch`: they are one count, which either side sets, counts down and waits for.

use crate::names::NAMES;
use crate::pair::{LONG, PUSHED, Pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_by_both_sides_open_a_latch_for_both_within_one_push() {
    let pair = Pair::start().await;
    // Either side in turn counts down the last one.
    for (index, name) in ["k"].into_iter().chain(NAMES).enumerate() {
        let last_is_ours = index % 2 == 0;
        let ours = pair.told.latch(name);
        assert!(ours.try_set_count(3).await.unwrap());
        assert_eq!(pair.java.ask(format!("latch-set {name} 9")).await, "false");
        let wait = format!("latch-await {name} {}", PUSHED.as_millis());
        let java_waits = pair.refused_twice("get", || pair.java.tell(&wait)).await;
        let waiter = ours.clone();
        let begin = || tokio::spawn(async move { waiter.opened().wait(PUSHED).await });
        let rust_waits = pair.refused_twice("get", begin).await;

        assert_eq!(ours.count_down().await.unwrap(), 2);
        assert_eq!(pair.java.ask(format!("latch-down {name}")).await, "ok");
        assert_eq!(ours.count().await.unwrap(), 1);
        assert_eq!(pair.java.ask(format!("latch-count {name}")).await, "1");
        assert!(!java_waits.is_there() && !rust_waits.is_finished());

        if last_is_ours {
            assert_eq!(ours.count_down().await.unwrap(), 0);
        } else {
            pair.java.ask(format!("latch-down {name}")).await;
        }
        assert_eq!(java_waits.await.unwrap(), "true");
        rust_waits.await.unwrap().unwrap();
        assert!(!pair.server.exists(name));
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_latch_lets_both_through_and_can_be_set_again() {
    let pair = Pair::start().await;
    let ours = pair.rust.latch("k");
    ours.opened().wait(LONG).await.unwrap();
    assert_eq!(pair.java.ask("latch-await k 0").await, "true");
    // Counting down an open latch changes nothing.
    assert_eq!(ours.count_down().await.unwrap(), 0);
    pair.java.ask("latch-down k").await;
    assert!(!pair.server.exists("k"));
    assert_eq!(pair.java.ask("latch-set k 1").await, "true");
    assert!(!ours.try_set_count(1).await.unwrap());
    assert_eq!(pair.java.ask("latch-await k 50").await, "false");
    assert_eq!(ours.count().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_deleted_by_java_opens_for_our_waiter_within_its_cap() {
    let pair = Pair::start().await;
    let ours = pair.rust.latch("k");
    ours.try_set_count(1).await.unwrap();
    let waiter = ours.clone();
    let begin = || tokio::spawn(async move { waiter.opened().wait(LONG).await });
    let waiting = pair.refused_twice("get", begin).await;
    assert_eq!(pair.java.ask("latch-delete k").await, "true");
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_deleted_by_us_opens_for_javas_waiter_within_one_push() {
    let pair = Pair::start().await;
    for name in ["k", "j", "x{t}"] {
        let ours = pair.rust.latch(name);
        assert!(ours.try_set_count(2).await.unwrap());
        let wait = format!("latch-await {name} {}", PUSHED.as_millis());
        let waiting = pair.refused_twice("get", || pair.java.tell(&wait)).await;
        assert!(ours.delete().await.unwrap());
        assert_eq!(waiting.await.unwrap(), "true");

        // The latch can be set again, and is closed then.
        assert_eq!(pair.java.ask(format!("latch-set {name} 1")).await, "true");
        assert_eq!(
            pair.java.ask(format!("latch-await {name} 50")).await,
            "false"
        );
    }
    assert_eq!(pair.java.complaints(), "");
}
