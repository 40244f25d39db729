//! Tests of a key that goes from process to process: how often a process asks, what becomes of its tokens, and when one
//! that stands back comes again.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::{CommandStats, RedisServer, eventually};
use tokio::task::JoinHandle;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
const CHANNEL: &str = "redisson_lock__channel:{lock:k}";

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
        let [ours, other] = [server.url(), server.url()].map(|url| async move {
            let locks = LockManager::connect(&url).await;
            locks.unwrap()
        });
        Scene {
            ours: ours.await,
            other: other.await,
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
    // Its first waiter has to ask again once it listens: a release between would be missed.
    for asks in [2, 1] {
        let guard = scene.other.mutex("k").acquire().await.unwrap();
        // Each answer that the lock is busy has the rest of the lease.
        let before = scene.calls("pttl");
        let waiting = tokio::spawn(scene.ours.mutex("k").wait(LONG).acquire());
        eventually("it has asked", async || {
            scene.calls("pttl") == before + asks
        })
        .await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(scene.calls("pttl"), before + asks);
    }
}

#[tokio::test]
async fn an_acquire_for_several_callers_is_their_first_hand_over_as_well() {
    let scene = Scene::new().await;
    let mut requests = 0;
    // On a busy machine a hold may last longer than the 2 ms for which the store need not be asked.
    for _ in 0..100 {
        let guard = scene.other.mutex("k").acquire().await.unwrap();
        let first = scene.wait_behind(0).await;
        let second = scene.wait_behind(1).await;
        let before = scene.calls("hset");
        guard.release().await.unwrap();
        for waiting in [first, second] {
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        requests = scene.calls("hset") - before;
        if requests == 1 {
            break;
        }
    }
    assert_eq!(requests, 1, "one request for both");
}

#[tokio::test]
async fn tokens_that_a_stretch_leaves_over_go_back_with_the_lock() {
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

#[tokio::test]
async fn a_process_that_stands_back_comes_when_all_others_have_had_their_turns() {
    const OTHERS: usize = 3;
    let scene = Scene::new().await;
    let mut listening = Vec::new();
    for _ in 0..OTHERS {
        let client = redis::Client::open(scene.server.url()).unwrap();
        let mut channel = client.get_async_pubsub().await.unwrap();
        channel.subscribe(CHANNEL).await.unwrap();
        listening.push(channel);
    }
    let mut away = [const { Vec::new() }; 2];
    for _ in 0..10 {
        for (others_release, away) in [false, true].into_iter().zip(&mut away) {
            // The process has waited for others, so it hears of releases.
            let guard = scene.other.mutex("k").acquire().await.unwrap();
            let first = scene.wait_behind(0).await;
            let second = scene.wait_behind(1).await;
            guard.release().await.unwrap();
            let guard = first.await.unwrap().unwrap();
            // Its stretch is over after this hold, also if a busy machine made the last round trips long. The next caller
            // stands back.
            tokio::time::sleep(80 * MS).await;
            guard.release().await.unwrap();
            let since = Instant::now();
            tokio::time::sleep(3 * MS).await;
            if others_release {
                // A busy process hears of several at once.
                let releases = format!(
                    "for _ = 1, {OTHERS} do redis.call('PUBLISH', ARGV[1], 0) end return 0"
                );
                let _: i64 = scene.server.query(&["EVAL", &releases, "0", CHANNEL]);
            }
            let guard = second.await.unwrap().unwrap();
            away.push(since.elapsed());
            guard.release().await.unwrap();
        }
    }
    // A pause of this process makes one round long, so it counts for no more than another.
    let [silent, heard] = away.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    assert!(heard * 4 < silent * 3, "{heard:?} instead of {silent:?}");
}
