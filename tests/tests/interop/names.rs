//! Tests of names with braces, colons and anything else: for each kind of lock, both sides derive the same keys and the
//! same channels from them.

use lock_runtime::TryAcquire;

use tests::eventually;

use crate::pair::{LONG, PUSHED, Pair};

pub(crate) const NAMES: [&str; 10] = [
    "order:17",
    "order:{17}",
    "{tenant:1}:order:17",
    "a{b}c",
    "{a}{b}",
    // The companion keys of these names would be in other slots of a cluster. On one server they work.
    "a{b",
    "a}b",
    "x{}y",
    "{}",
    "заказ:№17/ß*?[x]",
];

/// Derives a key by the documented rules, without the code of either side.
fn prefixed(prefix: &str, name: &str) -> String {
    match name.contains('{') {
        true => format!("{prefix}:{name}"),
        false => format!("{prefix}:{{{name}}}"),
    }
}

fn suffixed(name: &str, suffix: &str) -> String {
    match name.contains('{') {
        true => format!("{name}:{suffix}"),
        false => format!("{{{name}}}:{suffix}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_mutex_with_one_channel() {
    let pair = Pair::start().await;
    for name in NAMES {
        let java = pair.java.mutex(name);
        java.lock("a").await;
        assert!(pair.server.exists(name), "{name}");
        assert!(
            matches!(
                pair.rust.mutex(name).try_acquire().await.unwrap(),
                TryAcquire::Busy { .. }
            ),
            "{name}"
        );
        let rust_waits = pair
            .asleep(|| tokio::spawn(pair.told.mutex(name).wait(PUSHED).acquire()))
            .await;
        java.unlock("a").await;
        let guard = rust_waits.await.unwrap().unwrap();

        assert!(!java.try_lock("a").await, "{name}");
        let java_waits = pair.asleep(|| java.begin(PUSHED, "a")).await;
        guard.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true", "{name}");
        java.unlock("a").await;
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_fair_lock_with_one_queue() {
    let pair = Pair::start().await;
    for name in NAMES {
        let java = pair.java.lock_of("fair", name);
        let (queue, deadlines) = (
            prefixed("redisson_lock_queue", name),
            prefixed("redisson_lock_timeout", name),
        );
        let wait_for = async |so_many: u64| {
            eventually("it is in the queue, with a deadline", async || {
                let queued: u64 = pair.server.query(&["LLEN", &queue]);
                let dated: u64 = pair.server.query(&["ZCARD", &deadlines]);
                (queued, dated) == (so_many, so_many)
            })
            .await;
        };
        let guard = pair.rust.fair(name).acquire().await.unwrap();
        assert!(!java.try_lock("a").await, "{name}");
        let java_waits = java.begin(PUSHED, "a");
        wait_for(1).await;
        let rust_waits = tokio::spawn(pair.told.fair(name).wait(PUSHED).acquire());
        wait_for(2).await;
        guard.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true", "{name}");

        wait_for(1).await;
        java.unlock("a").await;
        let guard = rust_waits.await.unwrap().unwrap();
        assert!(!java.try_lock("a").await, "{name}");
        guard.release().await.unwrap();
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_read_write_lock_with_a_key_for_each_reader() {
    let pair = Pair::start().await;
    for name in NAMES {
        let (read, write) = (
            pair.java.lock_of("read", name),
            pair.java.lock_of("write", name),
        );
        let readers = || {
            let mut fields: Vec<String> = pair.server.query(&["HKEYS", name]);
            fields.retain(|field| field != "mode");
            fields
        };
        let entry = |holder: &str| suffixed(name, &format!("{holder}:rwlock_timeout:1"));

        // Java leaves first: the lease that it looks for is ours. Otherwise the lock would be gone or shorter.
        let ours = pair.rust.read(name).acquire().await.unwrap();
        read.lock("a").await;
        assert_eq!(readers().len(), 2, "{name}");
        for holder in readers() {
            assert!(pair.server.pttl(&entry(&holder)) > 0, "{name}: {holder}");
        }
        let java_waits = pair.asleep(|| write.begin(PUSHED, "b")).await;
        read.unlock("a").await;
        assert_eq!(readers().len(), 1, "{name}");
        assert!(pair.server.pttl(name) > 0, "{name}");
        ours.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true", "{name}");
        write.unlock("b").await;

        // We leave first, and look for Java's lease.
        // This is less than half of our lease, so that it counts.
        read.lock_for(LONG, "a").await;
        let theirs = entry(&readers()[0]);
        let ours = pair.rust.read(name).acquire().await.unwrap();
        ours.release().await.unwrap();
        let left = pair.server.pttl(name);
        assert!((1..=40_000).contains(&left), "{name}: {left}");
        let rust_waits = pair
            .asleep(|| tokio::spawn(pair.told.write(name).wait(PUSHED).acquire()))
            .await;
        read.unlock("a").await;
        let guard = rust_waits.await.unwrap().unwrap();
        assert!(!read.try_lock("a").await, "{name}");
        guard.release().await.unwrap();
        assert!(!pair.server.exists(&theirs), "{name}");
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_fenced_lock_with_one_counter() {
    let pair = Pair::start().await;
    for name in NAMES {
        let java = pair.java.lock_of("fenced", name);
        let take = format!("lock-token {name} {} -1 @a", PUSHED.as_millis());
        assert_eq!(pair.java.ask(&take).await, "1", "{name}");
        let rust_waits = pair
            .asleep(|| tokio::spawn(pair.told.fenced(name).wait(PUSHED).acquire()))
            .await;
        java.unlock("a").await;
        let guard = rust_waits.await.unwrap().unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), 2, "{name}");
        let java_waits = pair.asleep(|| pair.java.tell(&take)).await;
        guard.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "3", "{name}");
        java.unlock("a").await;
        let counter = prefixed("redisson_lock_token", name);
        assert_eq!(pair.server.query::<u64>(&["GET", &counter]), 3, "{name}");
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_semaphore_with_one_channel() {
    let pair = Pair::start().await;
    for name in NAMES {
        let ours = pair.told.plain_semaphore(name);
        assert!(ours.try_set_permits(1).await.unwrap(), "{name}");
        assert!(
            matches!(
                ours.permits(1).try_acquire().await.unwrap(),
                TryAcquire::Acquired(())
            ),
            "{name}"
        );
        let wait = format!("semaphore-acquire {name} 1 {}", PUSHED.as_millis());
        let java_waits = pair.refused_twice("get", || pair.java.tell(&wait)).await;
        ours.release(1).await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true", "{name}");

        let waiter = ours.clone();
        let begin = || tokio::spawn(async move { waiter.permits(1).wait(PUSHED).acquire().await });
        let rust_waits = pair.refused_twice("get", begin).await;
        let give = format!("semaphore-release {name} 1");
        assert_eq!(pair.java.ask(give).await, "ok", "{name}");
        rust_waits.await.unwrap().unwrap();
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_name_is_one_pool_of_leased_permits() {
    let pair = Pair::start().await;
    for name in NAMES {
        let ours = pair.told.semaphore(name);
        assert!(ours.try_set_permits(1).await.unwrap(), "{name}");
        let leases = suffixed(name, "timeout");
        let leased = || pair.server.query::<u64>(&["ZCARD", &leases]);
        let guard = ours.permits(1).acquire().await.unwrap();
        assert_eq!(leased(), 1, "{name}");
        let wait = format!("permits-acquire {name} {} 60000", PUSHED.as_millis());
        let java_waits = pair.refused_twice("zrange", || pair.java.tell(&wait)).await;
        guard.release().await.unwrap();
        let permit = java_waits.await.unwrap();

        assert_eq!(leased(), 1, "{name}");
        let begin = || tokio::spawn(ours.permits(1).wait(PUSHED).acquire());
        let rust_waits = pair.refused_twice("zrange", begin).await;
        let give = format!("permits-release {name} {permit}");
        assert_eq!(pair.java.ask(give).await, "true", "{name}");
        let guard = rust_waits.await.unwrap().unwrap();
        guard.release().await.unwrap();
        assert_eq!(leased(), 0, "{name}");
    }
    assert_eq!(pair.java.complaints(), "");
}
