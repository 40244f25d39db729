//! Tests of `read`, `write` and `getReadWriteLock`: readers of both sides hold together, and a writer of either side is
//! alone.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockMode, TryAcquire};
use tests::{JavaPeer, eventually, eventually_within};

use crate::pair::{LASTING, LONG, MS, OUTLASTING, PUSHED, Pair, with_the_lease};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_both_hold_together_and_no_writer_beside_them() {
    let pair = Pair::start().await;
    let (read, write) = (
        pair.java.lock_of("read", "k"),
        pair.java.lock_of("write", "k"),
    );
    read.lock("a").await;
    let ours = pair.rust.read("k").acquire().await.unwrap();
    read.lock("b").await;
    assert!(matches!(
        pair.rust.write("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(!write.try_lock("c").await);
    let info = pair.rust.inspect("k").await.unwrap();
    assert_eq!((info.held, info.mode), (true, Some(LockMode::Read)));
    read.unlock("a").await;
    read.unlock("b").await;
    assert!(!write.try_lock("c").await, "ours is left");
    ours.release().await.unwrap();
    assert!(write.try_lock("c").await);
    assert!(matches!(
        pair.rust.read("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(matches!(
        pair.rust.write("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(
        pair.rust.inspect("k").await.unwrap().mode,
        Some(LockMode::Write)
    );
    write.unlock("c").await;
    let ours = pair.rust.write("k").acquire().await.unwrap();
    assert!(!read.try_lock("a").await && !write.try_lock("a").await);
    ours.release().await.unwrap();
    assert!(read.try_lock("a").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_has_the_lock_within_one_push_of_the_last_reader() {
    let pair = Pair::start().await;
    let (read, write) = (
        pair.java.lock_of("read", "k"),
        pair.java.lock_of("write", "k"),
    );
    for _ in 0..4 {
        read.lock("a").await;
        let waiting = pair
            .asleep(|| tokio::spawn(pair.told.write("k").wait(PUSHED).acquire()))
            .await;
        read.unlock("a").await;
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();

        let reader = pair.rust.read("k").acquire().await.unwrap();
        let waiting = pair.asleep(|| write.begin(PUSHED, "a")).await;
        reader.release().await.unwrap();
        assert_eq!(waiting.await.unwrap(), "true");
        write.unlock("a").await;
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_have_the_lock_within_one_push_of_the_writer() {
    let pair = Pair::start().await;
    let (read, write) = (
        pair.java.lock_of("read", "k"),
        pair.java.lock_of("write", "k"),
    );
    for _ in 0..4 {
        write.lock("a").await;
        let waiting = pair
            .asleep(|| tokio::spawn(pair.told.read("k").wait(PUSHED).acquire()))
            .await;
        write.unlock("a").await;
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();

        let writer = pair.rust.write("k").acquire().await.unwrap();
        let one = pair.asleep(|| read.begin(PUSHED, "a")).await;
        let two = pair.asleep(|| read.begin(PUSHED, "b")).await;
        // A message wakes as many as sleep at that moment.
        for thread in ["a", "b"] {
            pair.java.sleeps(thread).await;
        }
        writer.release().await.unwrap();
        assert_eq!(one.await.unwrap(), "true");
        assert_eq!(two.await.unwrap(), "true");
        read.unlock("a").await;
        read.unlock("b").await;
    }
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_downgrade_lets_javas_waiting_readers_in() {
    let pair = Pair::start().await;
    let read = pair.java.lock_of("read", "k");
    let writer = pair.rust.write("k").acquire().await.unwrap();
    let nested = writer.scope(async { pair.rust.read("k").acquire().await });
    let nested = nested.await.unwrap();
    let waiting = pair.asleep(|| read.begin(PUSHED, "a")).await;
    writer.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), "true");
    assert!(nested.is_held());
    assert!(!pair.java.lock_of("write", "k").try_lock("b").await);
    nested.release().await.unwrap();
    read.unlock("a").await;
    assert!(pair.java.lock_of("write", "k").try_lock("b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_downgrade_lets_our_waiting_reader_in_within_its_cap() {
    let pair = Pair::start().await;
    let (read, write) = (
        pair.java.lock_of("read", "k"),
        pair.java.lock_of("write", "k"),
    );
    write.lock("a").await;
    read.lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.rust.read("k").wait(PUSHED).acquire()))
        .await;
    // Java's downgrade publishes nothing.
    write.unlock("a").await;
    let guard = waiting.await.unwrap().unwrap();
    read.unlock("a").await;
    assert!(!write.try_lock("b").await, "ours is left");
    guard.release().await.unwrap();
    assert!(write.try_lock("b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_java_reader_keeps_our_writer_out_for_its_lease() {
    let pair = Pair::start().await;
    let mut doomed = JavaPeer::with_watchdog(&pair.server, 3_000 * MS).await;
    doomed.lock_of("read", "k").lock("a").await;
    doomed.kill9();
    let since = Instant::now();
    let left = Duration::from_millis(pair.server.pttl("k").unsigned_abs());
    let guard = pair.rust.write("k").wait(LONG).acquire().await.unwrap();
    with_the_lease(since, left);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_readers_keep_our_writer_out_while_their_watchdog_lives() {
    let pair = Pair::with_watchdog(LASTING).await;
    // The watchdog of 3.52.0 renews the hash of each lock, but the leases of the readers of one lock only.
    let names = ["one", "other"];
    for name in names {
        pair.java.lock_of("read", name).lock("a").await;
    }
    tokio::time::sleep(OUTLASTING).await;
    for name in names {
        let busy = pair.rust.write(name).try_acquire().await.unwrap();
        assert!(matches!(busy, TryAcquire::Busy { .. }), "{name}: {busy:?}");
        let ours = pair.rust.read(name).acquire().await.unwrap();
        ours.release().await.unwrap();
        assert_eq!(pair.rust.inspect(name).await.unwrap().readers, 1, "{name}");
        pair.java.lock_of("read", name).unlock("a").await;
        let guard = pair.rust.write(name).wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_our_reader_is_restored_after_java_shortened_it() {
    let pair = Pair::start().await;
    let lease = 600_000 * MS;
    let ours = pair.rust.read("k").lease(lease).acquire().await.unwrap();
    let mut doomed = JavaPeer::start(&pair.server).await;
    doomed.lock_of("read", "k").lock("a").await;
    let left = || Duration::from_millis(pair.server.pttl("k").unsigned_abs());
    eventually_within(LONG, "its watchdog sets its own lease", async || {
        left() < lease / 2
    })
    .await;
    doomed.kill9();
    eventually_within(LONG, "ours is there again", async || left() > lease / 2).await;
    assert!(ours.is_held());
    ours.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remaining_reader_is_renewed_and_keeps_writers_out() {
    let pair = Pair::with_watchdog(LASTING).await;
    // Each side is left alone with what the other did to a key's TTL. The keys are two, so that one wait is enough for both.
    let java_is_left = async {
        let read = pair.java.lock_of("read", "j");
        let request = pair.rust.read("j").lease(LASTING);
        let ours = request.acquire().await.unwrap();
        read.lock("a").await;
        ours.release().await.unwrap();
        let busy = pair.rust.write("j").wait(OUTLASTING).acquire().await;
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        read.unlock("a").await;
    };
    let rust_is_left = async {
        let (read, write) = (
            pair.java.lock_of("read", "k"),
            pair.java.lock_of("write", "k"),
        );
        read.lock("b").await;
        let request = pair.rust.read("k").lease(LASTING);
        let ours = request.acquire().await.unwrap();
        read.unlock("b").await;
        assert_eq!(write.begin(OUTLASTING, "c").await.unwrap(), "false");
        assert!(ours.is_held());
        ours.release().await.unwrap();
        assert!(write.try_lock("c").await);
    };
    tokio::join!(java_is_left, rust_is_left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_releases_of_either_side_end_the_others_hold() {
    let pair = Pair::start().await;
    let write = pair.java.lock_of("write", "k");
    let request = pair.rust.write("k").lease(LASTING);
    let ours = request.acquire().await.unwrap();
    assert!(write.force_unlock().await);
    ours.lost().wait().await;
    drop(ours);
    eventually("the key is free", async || !pair.server.exists("k")).await;
    write.lock("a").await;
    assert!(pair.rust.force_release("k").await.unwrap());
    assert!(!write.is_held("a").await);
    assert!(matches!(
        pair.rust.write("k").try_acquire().await.unwrap(),
        TryAcquire::Acquired(_)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_both_sides_never_overlap_among_many_readers() {
    let pair = Pair::start().await;
    let write = pair.java.lock_of("write", "k");
    let in_java = [
        write.contend(80, "counter", "a"),
        write.contend(80, "counter", "b"),
    ];
    let writer = async || {
        for _ in 0..80 {
            let guard = pair.rust.write("k").wait(LONG).acquire().await.unwrap();
            let old: Option<u64> = pair.server.query(&["GET", "counter"]);
            let new = old.unwrap_or(0) + 1;
            let _: String = pair.server.query(&["SET", "counter", &new.to_string()]);
            guard.release().await.unwrap();
        }
    };
    let reader = async || {
        for _ in 0..80 {
            let guard = pair.rust.read("k").wait(LONG).acquire().await.unwrap();
            let before: Option<u64> = pair.server.query(&["GET", "counter"]);
            tokio::task::yield_now().await;
            let after: Option<u64> = pair.server.query(&["GET", "counter"]);
            assert_eq!(before, after, "a writer beside a reader");
            guard.release().await.unwrap();
        }
    };
    tokio::join!(writer(), writer(), reader(), reader());
    for answer in in_java {
        assert_eq!(answer.await.unwrap(), "0");
    }
    assert_eq!(pair.server.query::<u64>(&["GET", "counter"]), 320);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_re_entries_into_either_side_are_left_alone() {
    let pair = Pair::start().await;
    let (read, write) = (
        pair.java.lock_of("read", "k"),
        pair.java.lock_of("write", "k"),
    );
    write.lock("a").await;
    write.lock("a").await;
    let waiting = pair
        .asleep(|| tokio::spawn(pair.told.read("k").wait(PUSHED).acquire()))
        .await;
    assert_eq!(write.hold_count("a").await, 2);
    write.unlock("a").await;
    assert!(matches!(
        pair.rust.write("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(write.hold_count("a").await, 1);
    assert!(!waiting.is_finished());
    write.unlock("a").await;
    let ours = waiting.await.unwrap().unwrap();

    // A reader of ours leaves beside one of Java's that is in twice.
    read.lock("a").await;
    read.lock("a").await;
    assert_eq!(read.hold_count("a").await, 2);
    ours.release().await.unwrap();
    assert_eq!(read.hold_count("a").await, 2);
    let waiting = pair
        .asleep(|| tokio::spawn(pair.told.write("k").wait(PUSHED).acquire()))
        .await;
    read.unlock("a").await;
    assert_eq!(read.hold_count("a").await, 1);
    assert!(!waiting.is_finished());
    read.unlock("a").await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
