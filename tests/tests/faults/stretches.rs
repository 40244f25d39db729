//! Tests of a key that goes from process to process: how often a process asks, what becomes of its tokens, and when one
//! that stands back comes again.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::faults::{free_within, told};
use tests::{CommandStats, RedisServer, eventually, eventually_within};
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
        Scene::of(RedisServer::start(), RedisServer::url).await
    }

    /// The managers have no right to the waiting list, so processes race for the lock.
    async fn without_list() -> Scene {
        let server = RedisServer::start();
        let user = "ACL SETUSER racer reset on >secret +@all &* ~lock:k ~lock:other ~lock:fence:* ~lock:connect-check:* ~redisson*";
        let user: Vec<_> = user.split(' ').collect();
        let _: redis::Value = server.query(&user);
        Scene::of(server, |server| server.url_with("racer", "secret")).await
    }

    async fn of(server: RedisServer, url: impl Fn(&RedisServer) -> String) -> Scene {
        let [ours, other] = [url(&server), url(&server)]
            .map(|url| async move { told().connect(&url).await.unwrap() });
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
        // If it asked once more, that would be done by now.
        for _ in 0..2 {
            free_within(&scene.ours, "other", LONG).await;
        }
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(scene.calls("pttl"), before + asks);
    }
}

#[tokio::test]
async fn an_acquire_for_several_callers_is_their_first_hand_over_as_well() {
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
    let scene = Scene::without_list().await;
    let mut listening = Vec::new();
    for _ in 0..OTHERS {
        let client = redis::Client::open(scene.server.url()).unwrap();
        let mut channel = client.get_async_pubsub().await.unwrap();
        channel.subscribe(CHANNEL).await.unwrap();
        listening.push(channel);
    }
    // Returns how long the process stands back after a stretch. Zero if it does not, for the stretch is not over: where
    // round trips take long, it lasts long.
    let away = async |others_release: bool| {
        // The process has waited for others, so it hears of releases.
        let guard = scene.other.mutex("k").acquire().await.unwrap();
        let first = scene.wait_behind(0).await;
        let second = scene.wait_behind(1).await;
        guard.release().await.unwrap();
        let guard = first.await.unwrap().unwrap();
        // Its stretch is over after this hold. The next caller stands back.
        tokio::time::sleep(200 * MS).await;
        let since = Instant::now();
        guard.release().await.unwrap();
        let stands_back = !scene.server.exists("lock:k");
        if others_release {
            // A busy process hears of several at once.
            let releases =
                format!("for _ = 1, {OTHERS} do redis.call('PUBLISH', ARGV[1], 0) end return 0");
            let _: i64 = scene.server.query(&["EVAL", &releases, "0", CHANNEL]);
        }
        let guard = second.await.unwrap().unwrap();
        let away = since.elapsed();
        guard.release().await.unwrap();
        if stands_back { away } else { Duration::ZERO }
    };
    // The pause lasts for 50 ms give or take a quarter, and for half of that once the others have had their turns. A busy
    // machine makes rounds longer, and none shorter: where the others were not heard, none is as short as this.
    let unheard = 37 * MS;
    let mut rounds = 0;
    eventually_within(LONG, "it stands back", async || {
        let silent = away(false).await;
        assert!(silent.is_zero() || silent >= unheard, "{silent:?}");
        rounds += usize::from(!silent.is_zero());
        rounds == 5
    })
    .await;
    // No round without them follows: their messages may be late.
    eventually_within(LONG, "it comes after their turns", async || {
        let heard = away(true).await;
        !heard.is_zero() && heard < unheard
    })
    .await;
}
