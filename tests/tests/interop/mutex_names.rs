//! Names with braces, colons and anything else: both sides derive the same key and the same channel from them.

use std::time::Instant;

use crate::pair::{LONG, ONE_PUSH, Pair, mostly_within};

const NAMES: [&str; 10] = [
    "order:17",
    "order:{17}",
    "{tenant:1}:order:17",
    "a{b}c",
    "{a}{b}",
    // Companion keys of these would be in other slots of a cluster; on one server they work.
    "a{b",
    "a}b",
    "x{}y",
    "{}",
    "заказ:№17/ß*?[x]",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_lock_with_one_channel() {
    let pair = Pair::start().await;
    let mut times = Vec::new();
    for name in NAMES {
        let java = pair.java.mutex(name);
        java.lock("a").await;
        assert!(pair.server.exists(name), "{name}");
        assert!(
            pair.rust.mutex(name).try_acquire().await.unwrap().is_none(),
            "{name}"
        );
        let rust_waits = pair
            .asleep(|| tokio::spawn(pair.rust.mutex(name).wait(LONG).acquire()))
            .await;
        let released = Instant::now();
        java.unlock("a").await;
        let guard = rust_waits.await.unwrap().unwrap();
        times.push(released.elapsed());

        assert!(!java.try_lock("a").await, "{name}");
        let java_waits = pair.asleep(|| java.begin(LONG, "a")).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true", "{name}");
        times.push(released.elapsed());
        java.unlock("a").await;
    }
    mostly_within(ONE_PUSH, times);
    assert_eq!(pair.java.complaints(), "");
}
