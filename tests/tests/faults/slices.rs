//! Tests of a key that goes from process to process: how often a process asks, and what becomes of its tokens.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::faults::{connected, free_within, told};
use tests::stops::{STOP, in_one_of_a_few_rounds};
use tests::{CommandStats, RedisServer, eventually, eventually_within};
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

struct Scene {
    server: RedisServer,
    /// A process whose callers wait.
    ours: LockManager,
    other: LockManager,
}

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

impl Scene {
    async fn new() -> Scene {
        let server = RedisServer::start();
        Scene {
            ours: connected(told(), &server.url()).await,
            other: connected(told(), &server.url()).await,
            server,
        }
    }

    async fn wait_behind(&self, others: usize) -> Waiting {
        let waiting = tokio::spawn(self.ours.mutex("k").wait(LONG).acquire());
        eventually("one more waits", async || {
            self.ours.inspect("k").await.unwrap().local_waiters == others + 1
        })
        .await;
        waiting
    }

    /// The calls of a command, so far.
    fn calls(&self, command: &str) -> u64 {
        CommandStats::of(&self.server).calls(command)
    }

    /// The last token that was drawn or set aside. There is another fence, of the check of each connection, which is older.
    fn fence(&self) -> u64 {
        let keys = self.server.keys();
        let fences = keys.iter().filter(|key| key.starts_with("lock:fence:"));
        let tokens = fences.map(|fence| self.server.query(&["GET", fence]));
        tokens.max().unwrap()
    }
}

#[tokio::test]
async fn a_process_that_hears_of_releases_asks_once_before_it_waits() {
    let scene = Scene::new().await;
    let asks_for_one_wait = async |at_least: u64| {
        let guard = scene.other.mutex("k").acquire().await.unwrap();
        // Each answer that the lock is busy has the rest of the lease.
        let before = scene.calls("pttl");
        let waiting = tokio::spawn(scene.ours.mutex("k").wait(LONG).acquire());
        let have_come = async || scene.calls("pttl") >= before + at_least;
        eventually("it has asked", have_come).await;
        // If it asked once more, that would be done by now.
        for _ in 0..4 {
            free_within(&scene.ours, "other", LONG).await;
        }
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        scene.calls("pttl") - before
    };
    // Its first waiter has to ask again once it listens: a release between would be missed.
    assert_eq!(asks_for_one_wait(2).await, 2);
    // It goes on listening for two seconds, which a busy machine may need for something else.
    in_one_of_a_few_rounds(STOP, "the next waiter asks once", async || {
        asks_for_one_wait(1).await == 1
    })
    .await;
}

#[tokio::test]
async fn an_acquire_for_several_callers_is_their_first_hand_over() {
    let scene = Scene::new().await;
    // On a busy machine a hold may last longer than the 2 ms for which the store need not be asked.
    eventually_within(LONG, "one request for both", async || {
        let guard = scene.other.mutex("k").acquire().await.unwrap();
        let first = scene.wait_behind(0).await;
        let second = scene.wait_behind(1).await;
        let before = scene.calls("hset");
        guard.release().await.unwrap();
        for waiting in [first, second] {
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        scene.calls("hset") == before + 1
    })
    .await;
}

#[tokio::test]
async fn tokens_that_a_slice_leaves_over_go_back_with_the_lock() {
    let scene = Scene::new().await;
    let mut last = 0;
    // The lock is had by an acquire, or by a hand-over.
    for holder in [&scene.other, &scene.ours] {
        let guard = holder.mutex("k").acquire().await.unwrap();
        let first = scene.wait_behind(0).await;
        let second = scene.wait_behind(1).await;
        guard.release().await.unwrap();
        for waiting in [first, second] {
            let guard = waiting.await.unwrap().unwrap();
            let token = guard.fencing_token().unwrap().get();
            assert!(token > last, "{token} after {last}");
            last = token;
            guard.release().await.unwrap();
        }
        assert_eq!(scene.fence(), last);
    }
}
