//! Tests of futures that are dropped at each of their polls: nothing is left of them, and nobody waits longer because
//! of them.
//!
//! A proxy delays both directions, so that a poll returns pending at every await point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::LockManager;
use tests::faults::{
    LEAVES, Leave, at_each_poll, behind_a_proxy, connected, free_within, poll_times, took,
};
use tests::stops::{DRAIN, in_one_of_a_few_rounds};
use tests::{Direction, FaultProxy, RedisServer, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The time within which nothing of a dropped future is left. That takes some round trips. What waits for the end of a
/// lease of [`HOUR`] or of a call of [`LONGEST_CALL`] takes longer than this, and nothing else does.
const ORPHAN: Duration = Duration::from_secs(45);
const LONGEST_CALL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

struct Scene {
    server: RedisServer,
    _proxy: FaultProxy,
    slow: LockManager,
    other: LockManager,
    tasks: usize,
}

impl Scene {
    async fn new() -> Scene {
        Self::with(LONGEST_CALL).await
    }

    async fn with(call_timeout: Duration) -> Scene {
        let server = RedisServer::start();
        let builder = tests::builder().call_timeout(call_timeout).lease(HOUR);
        let (proxy, slow) = behind_a_proxy(&server, builder.clone()).await;
        let other = connected(builder, &server.url()).await;
        // Whatever a first use starts is running before the tasks are counted.
        free_within(&slow, "warm", LONG).await;
        free_within(&other, "warm", LONG).await;
        proxy.delay(Direction::Requests, 2 * MS);
        proxy.delay(Direction::Replies, 2 * MS);
        let tasks = alive_tasks();
        Scene {
            server,
            _proxy: proxy,
            slow,
            other,
            tasks,
        }
    }

    /// Asserts that another manager gets the lock, and that no orphan comes up after it.
    async fn assert_free(&self, what: &str) {
        free_within(&self.other, "k", ORPHAN).await;
        eventually_within(ORPHAN, what, async || self.server.stray_keys().is_empty()).await;
        let info = self.slow.inspect("k").await.unwrap();
        assert_eq!(info.local_waiters, 0, "{what}: a queue entry is left");
    }

    async fn end(self) {
        eventually("no task is left", async || alive_tasks() <= self.tasks).await;
        drop((self.slow, self.other));
        self.server.assert_deserted().await;
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

#[tokio::test]
async fn an_acquire_dropped_at_any_poll_leaves_the_lock_free() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let guard = poll_times(scene.slow.mutex("k").acquire(), polls, leave).await;
        let completed = guard.is_some();
        drop(guard.map(Result::unwrap));
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        completed
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_try_dropped_at_any_poll_leaves_the_lock_free() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let tried = poll_times(scene.slow.mutex("k").try_acquire(), polls, leave).await;
        let completed = tried.is_some();
        drop(tried.map(|tried| tried.unwrap().expect("it is free")));
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        completed
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_waiter_dropped_at_any_poll_leaves_the_queue_and_the_lock() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let holder = scene.other.mutex("k").acquire().await.unwrap();
        // The lock is released while the waiter is somewhere on its way: it has asked, or subscribed, or sleeps.
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(25 * MS).await;
            holder.release().await.unwrap();
        });
        let waiter = scene.slow.mutex("k").wait(LONG).acquire();
        let guard = poll_times(waiter, polls, leave).await;
        let completed = guard.is_some();
        drop(guard.map(Result::unwrap));
        releasing.await.unwrap();
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        completed
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_fair_waiter_dropped_at_any_poll_leaves_queue_and_lock() {
    // A place is given back a second time after a question may not arrive any more, which `end` waits for.
    let scene = Scene::with(5_000 * MS).await;
    at_each_poll(async |polls, leave| {
        let holder = scene.other.fair("k").acquire().await.unwrap();
        // The lock is released while the waiter is somewhere on its way: it has asked, or subscribed, or sleeps.
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(25 * MS).await;
            holder.release().await.unwrap();
        });
        let waiter = scene.slow.fair("k").wait(LONG).acquire();
        let guard = poll_times(waiter, polls, leave).await;
        let completed = guard.is_some();
        drop(guard.map(Result::unwrap));
        releasing.await.unwrap();
        // A place that nobody gives back stays there until others have asked for long enough.
        eventually_within(ORPHAN, "it has left the queue", async || {
            !scene.server.exists("redisson_lock_queue:{lock:k}")
        })
        .await;
        // The next request is a fair one, because only the first in the queue is told of a release.
        let next = scene.other.fair("k").wait(ORPHAN).acquire().await;
        next.unwrap().release().await.unwrap();
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        completed
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn an_heir_dropped_at_any_poll_passes_the_lock_on() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let holder = scene.slow.mutex("k").acquire().await.unwrap();
        let heir = scene.slow.mutex("k").wait(LONG).acquire();
        let releasing = async {
            tokio::task::yield_now().await;
            holder.release().await.unwrap();
        };
        let (guard, ()) = tokio::join!(poll_times(heir, polls, leave), releasing);
        let completed = guard.is_some();
        drop(guard.map(Result::unwrap));
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        completed
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_hand_over_whose_both_sides_are_dropped_serves_the_third() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let holder = scene.slow.mutex("k").acquire().await.unwrap();
        let heir = Box::pin(scene.slow.mutex("k").wait(LONG).acquire());
        let mut heir = Some(heir);
        let queued = poll_times(heir.as_mut().unwrap(), 1, Leave::AtOnce).await;
        assert!(queued.is_none(), "the heir waits");
        let third = tokio::spawn(scene.slow.mutex("k").wait(LONG).acquire());
        let released = poll_times(holder.release(), polls, leave).await;
        drop(heir.take());
        let third = tokio::time::timeout(ORPHAN, third).await;
        let third = third.expect("the third is served").unwrap().unwrap();
        assert!(third.is_held());
        third.release().await.unwrap();
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        released.is_some()
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_release_dropped_at_any_poll_still_frees_the_lock() {
    let scene = Scene::new().await;
    at_each_poll(async |polls, leave| {
        let guard = scene.slow.mutex("k").acquire().await.unwrap();
        let released = poll_times(guard.release(), polls, leave).await;
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        released.map(Result::unwrap).is_some()
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_run_dropped_at_any_poll_drops_its_body_before_the_lock() {
    /// A value inside a body that counts living bodies and asserts, when it is dropped, that the lock is still held.
    struct Body(Arc<AtomicUsize>, lock_runtime::Lease);
    impl Drop for Body {
        fn drop(&mut self) {
            assert!(self.1.is_held(), "the body outlived its hold");
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let scene = Scene::new().await;
    let running = Arc::new(AtomicUsize::new(0));
    at_each_poll(async |polls, leave| {
        let running_in = running.clone();
        let run = scene.slow.mutex("k").run(async move |lease| {
            running_in.fetch_add(1, SeqCst);
            let _body = Body(running_in.clone(), lease);
            for _ in 0..3 {
                tokio::time::sleep(MS).await;
            }
        });
        let done = poll_times(run, polls, leave).await;
        assert_eq!(running.load(SeqCst), 0, "the body is gone with the future");
        scene
            .assert_free(&format!("{polls} polls, {leave:?}"))
            .await;
        done.map(Result::unwrap).is_some()
    })
    .await;
    scene.end().await;
}

#[tokio::test]
async fn a_renewal_dropped_at_any_poll_leaves_the_hold_intact() {
    let scene = Scene::new().await;
    let guard = scene.slow.mutex("k").acquire().await.unwrap();
    at_each_poll(async |polls, leave| {
        let renewed = poll_times(guard.renew(HOUR * 2), polls, leave).await;
        assert!(guard.is_held());
        assert!(scene.server.exists("lock:k"));
        renewed.map(Result::unwrap).is_some()
    })
    .await;
    guard.release().await.unwrap();
    scene.assert_free("after the renewals").await;
    scene.end().await;
}

#[tokio::test]
async fn a_connect_dropped_at_any_poll_leaves_no_connection_or_key() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    proxy.delay(Direction::Replies, 2 * MS);
    let tasks = alive_tasks();
    at_each_poll(async |polls, leave| {
        let url = proxy.url();
        let connecting = tests::builder().connect(&url);
        let locks = poll_times(connecting.into_future(), polls, leave).await;
        let completed = locks.is_some();
        drop(locks.map(Result::unwrap));
        // The proxy's own tasks end with their connections.
        eventually("tasks and connections are gone", async || {
            proxy.open_connections() == 0 && alive_tasks() <= tasks
        })
        .await;
        completed
    })
    .await;
    // A check that was interrupted leaves its key for 2 s at most.
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_shutdown_dropped_at_any_poll_goes_on_when_called_again() {
    for leave in LEAVES {
        for polls in 0..4 {
            // What a machine that stands still keeps back for longer is left to its lease.
            in_one_of_a_few_rounds(Duration::ZERO, "nothing is left", async || {
                let server = RedisServer::start();
                let builder = tests::builder().shutdown_grace(50 * MS);
                let locks = connected(builder, &server.url()).await;
                let body = tokio::spawn(
                    locks
                        .mutex("k")
                        .run(async |_| std::future::pending::<()>().await),
                );
                eventually("the body runs", async || server.exists("lock:k")).await;
                let (_, early) = took(poll_times(locks.shutdown(), polls, leave)).await;
                let (late, rest) = took(tokio::time::timeout(LONG, locks.shutdown())).await;
                late.unwrap();
                assert!(body.await.unwrap().is_err());
                drop(locks);
                let in_time = early + rest < DRAIN;
                if in_time {
                    server.assert_deserted().await;
                }
                in_time
            })
            .await;
        }
    }
}
