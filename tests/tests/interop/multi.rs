//! Tests of `multi` and `getMultiLock`: sets of locks that overlap, with the members named in any order.

use lock_runtime::TryAcquire;

use crate::pair::{HOUR, PUSHED, Pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_of_either_side_keeps_out_callers_for_a_part_of_it() {
    let pair = Pair::start().await;
    let set = |names: [&'static str; 2]| pair.told.multi(names.map(|name| pair.told.mutex(name)));
    let java = pair.java.lock_of("multi", "x,y");
    java.lock("a").await;
    assert!(matches!(
        set(["y", "z"]).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(!pair.java.mutex("z").is_locked().await, "all or nothing");
    let waiting = pair
        .asleep(|| tokio::spawn(set(["y", "z"]).wait(PUSHED).acquire()))
        .await;
    assert!(!waiting.is_finished());
    java.unlock("a").await;
    let guard = waiting.await.unwrap().unwrap();

    assert!(!java.try_lock("a").await);
    assert!(!pair.java.mutex("x").is_locked().await);
    guard.release().await.unwrap();
    assert!(java.try_lock("a").await);
    java.unlock("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_in_opposite_orders_do_not_deadlock() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("multi", "y,x");
    let in_java = java.contend(40, "counter", "a");
    for _ in 0..40 {
        let members = ["x", "y"].map(|name| pair.rust.mutex(name));
        // Each may wait for the other's member until Java gives up after 3 s, several times in a row.
        let guard = pair.rust.multi(members).wait(HOUR).acquire().await.unwrap();
        let old: Option<u64> = pair.server.query(&["GET", "counter"]);
        let new = old.unwrap_or(0) + 1;
        let _: String = pair.server.query(&["SET", "counter", &new.to_string()]);
        guard.release().await.unwrap();
    }
    assert_eq!(in_java.await.unwrap(), "0");
    assert_eq!(pair.server.query::<u64>(&["GET", "counter"]), 80);
}
