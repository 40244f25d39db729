//! Tests of `fair` and `getFairLock`: there is one queue, served in the order in which its waiters came, in Java or in
//! Rust.

use lock_runtime::{LockError, LockGuard, TryAcquire};
use tests::{JavaPeer, eventually};
use tokio::task::JoinHandle;

use crate::pair::{LASTING, LONG, MS, PUSHED, Pair};

/// A waiter of either side.
enum Waiter {
    Java(tests::java::Answer, String),
    Rust(JoinHandle<Result<LockGuard, LockError>>),
}

impl Waiter {
    fn has_it(&self) -> bool {
        match self {
            Waiter::Java(answer, _) => answer.is_there(),
            Waiter::Rust(task) => task.is_finished(),
        }
    }
}

impl Pair {
    fn queued(&self) -> usize {
        self.server.query(&["LLEN", "redisson_lock_queue:{k}"])
    }

    /// Begins a wait, and returns when the queue has `place` waiters, of which it is the last.
    async fn queue<T>(&self, place: usize, begin: impl FnOnce() -> T) -> T {
        let waiter = begin();
        eventually("the waiter is in the queue", async || {
            self.queued() == place
        })
        .await;
        waiter
    }

    fn rust_waits(&self) -> JoinHandle<Result<LockGuard, LockError>> {
        tokio::spawn(self.rust.fair("k").wait(LONG).acquire())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_both_are_served_in_the_order_in_which_they_came() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    let guard = pair.rust.fair("k").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for place in 1..=12 {
        // Two waiters of each side come in turn, so that each kind of neighbour occurs.
        let thread = format!("t{place}");
        waiters.push(
            pair.queue(place, || match place % 4 {
                0 | 1 => Waiter::Java(java.begin(LONG, &thread), thread),
                _ => Waiter::Rust(pair.rust_waits()),
            })
            .await,
        );
    }
    guard.release().await.unwrap();
    while !waiters.is_empty() {
        let next = waiters.remove(0);
        eventually("the next one has the lock", async || next.has_it()).await;
        let early = waiters.iter().position(Waiter::has_it);
        assert_eq!(early, None, "overtaken, with {} left", waiters.len());
        match next {
            Waiter::Java(answer, thread) => {
                assert_eq!(answer.await.unwrap(), "true");
                java.unlock(&thread).await;
            }
            Waiter::Rust(task) => task.await.unwrap().unwrap().release().await.unwrap(),
        }
    }
    assert_eq!(pair.queued(), 0);
    assert_eq!(pair.java.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_or_is_dropped_leaves_the_queue() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    java.lock("holder").await;
    // It stays until the others have come, also on a busy machine.
    let gives_up = pair.queue(1, || java.begin(20_000 * MS, "short")).await;
    let dropped = pair.queue(2, || pair.rust_waits()).await;
    let stays = pair.queue(3, || java.begin(LONG, "long")).await;
    let last = pair.queue(4, || pair.rust_waits()).await;
    dropped.abort();
    assert_eq!(gives_up.await.unwrap(), "false");
    eventually("two are left", async || pair.queued() == 2).await;
    java.unlock("holder").await;
    assert_eq!(stays.await.unwrap(), "true");
    java.unlock("long").await;
    last.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_waiter_killed_at_the_head_delays_us_to_its_deadline() {
    let pair = Pair::start().await;
    let mut doomed = JavaPeer::start(&pair.server).await;
    // Java's deadline is what was left of the lease when it came, and its wait. On a busy machine as well, Java is killed
    // before either of them is over. Our own wait is longer than both together.
    let guard = pair.rust.fair("k").lease(LASTING).acquire().await.unwrap();
    let wait = 10_000 * MS;
    let _dead = pair
        .queue(1, || doomed.lock_of("fair", "k").begin(wait, "a"))
        .await;
    let waiting = pair.queue(2, || pair.rust_waits()).await;
    doomed.kill9();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_force_unlocks_for_our_waiter_and_we_for_javas() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    java.lock("a").await;
    let waiting = pair.queue(1, || pair.rust_waits()).await;
    assert!(java.force_unlock().await);
    let guard = waiting.await.unwrap().unwrap();
    let waiting = pair.queue(1, || java.begin(PUSHED, "b")).await;
    assert!(pair.rust.force_release("k").await.unwrap());
    assert_eq!(waiting.await.unwrap(), "true");
    guard.lost().wait().await;
    assert!(java.is_held("b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_a_fair_lock_past_those_who_wait() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    let guard = pair.rust.fair("k").acquire().await.unwrap();
    let first = pair.queue(1, || java.begin(LONG, "a")).await;
    let second = pair.queue(2, || pair.rust_waits()).await;
    assert!(matches!(
        pair.rust.fair("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(!java.try_lock("b").await);
    assert_eq!(pair.queued(), 2, "who tries does not queue");
    guard.release().await.unwrap();
    assert_eq!(first.await.unwrap(), "true");
    java.unlock("a").await;
    second.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_in_one_fair_queue_are_never_inside_together() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    let in_java = [
        java.contend(60, "counter", "a"),
        java.contend(60, "counter", "b"),
    ];
    let contend = async || {
        for _ in 0..60 {
            let guard = pair.rust.fair("k").wait(LONG).acquire().await.unwrap();
            let old: Option<u64> = pair.server.query(&["GET", "counter"]);
            let new = old.unwrap_or(0) + 1;
            let _: String = pair.server.query(&["SET", "counter", &new.to_string()]);
            guard.release().await.unwrap();
        }
    };
    tokio::join!(contend(), contend());
    for answer in in_java {
        assert_eq!(answer.await.unwrap(), "0");
    }
    assert_eq!(pair.server.query::<u64>(&["GET", "counter"]), 240);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_re_entries_into_a_fair_lock_are_counted_and_left_alone() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fair", "k");
    java.lock("a").await;
    java.lock("a").await;
    assert_eq!(pair.rust.inspect("k").await.unwrap().count, 2);
    let waiting = pair.queue(1, || pair.rust_waits()).await;
    assert!(matches!(
        pair.rust.fair("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(java.hold_count("a").await, 2);
    java.unlock("a").await;
    assert!(matches!(
        pair.rust.fair("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(java.hold_count("a").await, 1);
    assert_eq!(pair.rust.inspect("k").await.unwrap().count, 1);
    assert!(!waiting.is_finished());
    java.unlock("a").await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
