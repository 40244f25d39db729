//! Tests of locks on a Redis Cluster beside Redisson: a holder excludes the other side, and its release wakes the other
//! side, by sharded and by classic channels.

use lock_runtime::{ClusterChannels, LockManager, LockRequest, TryAcquire};
use tests::faults::connected;
use tests::{CommandStats, JavaPeer, RedisCluster};

use crate::pair::{HOUR, LONG, PUSHED, asks_no_more, builder};

const SIDES: [(&str, &str); 4] = [
    ("mutex", "mutex"),
    ("fair", "fair"),
    ("write", "read"),
    ("read", "write"),
];

fn request(locks: &LockManager, kind: &str, name: &str) -> LockRequest {
    match kind {
        "mutex" => locks.mutex(name),
        "fair" => locks.fair(name),
        "read" => locks.read(name),
        "write" => locks.write(name),
        other => panic!("no such kind: {other}"),
    }
}

struct Pair {
    // This field is declared first, so that clients end before the servers do.
    java: JavaPeer,
    rust: LockManager,
    /// Another one, on which only a message wakes those who wait, or the end of a lease.
    told: LockManager,
    cluster: RedisCluster,
}

impl Pair {
    async fn start(java_is_sharded: bool, channels: ClusterChannels) -> Self {
        let cluster = RedisCluster::start().await;
        let java = JavaPeer::on_cluster(&cluster, java_is_sharded).await;
        let builder = || builder().cluster_channels(channels);
        let rust = connected(builder(), &cluster.url()).await;
        let told = connected(builder().longest_nap(HOUR), &cluster.url()).await;
        Self {
            java,
            rust,
            told,
            cluster,
        }
    }

    /// Begins a wait, and returns when the waiter sleeps.
    async fn asleep<T>(&self, begin: impl FnOnce() -> T) -> T {
        let asked = || {
            let nodes = self.cluster.nodes.iter();
            nodes
                .map(|node| CommandStats::of(node).scripts())
                .sum::<u64>()
        };
        asks_no_more(asked, begin).await
    }

    /// Takes locks on every node, and lets each side wait for the other.
    async fn each_wakes_the_other(&self) {
        for (held, wanted) in SIDES {
            for node in 0..3 {
                let name = self.cluster.key_at(node, &format!("{held}{wanted}"));
                let java = self.java.lock_of(held, &name);
                java.lock("a").await;
                assert!(self.cluster.stands_at(node, &name));
                let refused = request(&self.rust, wanted, &name).try_acquire().await;
                let refused = refused.unwrap();
                assert!(
                    matches!(refused, TryAcquire::Busy { .. }),
                    "{held} keeps out {wanted}"
                );
                let begin =
                    || tokio::spawn(request(&self.told, wanted, &name).wait(PUSHED).acquire());
                let waiting = self.asleep(begin).await;
                java.unlock("a").await;
                let guard = waiting.await.unwrap().unwrap();
                guard.release().await.unwrap();

                let guard = request(&self.rust, held, &name).acquire().await.unwrap();
                let java = self.java.lock_of(wanted, &name);
                assert!(!java.try_lock("b").await, "{held} keeps out {wanted}");
                let waiting = self.asleep(|| java.begin(PUSHED, "b")).await;
                guard.release().await.unwrap();
                assert_eq!(waiting.await.unwrap(), "true");
                java.unlock("b").await;
            }
        }
        self.permits_are_one_pool().await;
        assert_eq!(self.java.complaints(), "");
    }

    async fn permits_are_one_pool(&self) {
        let ours = self.told.semaphore("s");
        assert!(ours.try_set_permits(1).await.unwrap());
        for _ in 0..3 {
            let permit = self.java.ask("permits-acquire s 0 60000").await;
            assert!(matches!(
                ours.permits(1).try_acquire().await.unwrap(),
                TryAcquire::Busy { .. }
            ));
            let begin = || tokio::spawn(ours.permits(1).wait(PUSHED).acquire());
            let waiting = self.asleep(begin).await;
            assert_eq!(
                self.java.ask(format!("permits-release s {permit}")).await,
                "true"
            );
            let guard = waiting.await.unwrap().unwrap();

            let wait = format!("permits-acquire s {} 60000", PUSHED.as_millis());
            let waiting = self.asleep(|| self.java.tell(&wait)).await;
            guard.release().await.unwrap();
            let permit = waiting.await.unwrap();
            assert_eq!(
                self.java.ask(format!("permits-release s {permit}")).await,
                "true"
            );
        }
    }

    /// Adds one to a counter `times` times by reading and writing it, under the lock. Returns how often somebody else
    /// was inside.
    async fn contend(&self, kind: &str, name: &str, times: u64) -> u64 {
        let node = self.cluster.owner_of_key(name);
        let (counter, inside) = (format!("{{{name}}}"), format!("{{{name}}}:inside"));
        let mut overlaps = 0;
        for _ in 0..times {
            let guard = request(&self.rust, kind, name)
                .wait(LONG)
                .acquire()
                .await
                .unwrap();
            let alone: Option<String> = self.cluster.query(node, &["SET", &inside, "rust", "NX"]);
            overlaps += u64::from(alone.is_none());
            let old: Option<u64> = self.cluster.query(node, &["GET", &counter]);
            tokio::task::yield_now().await;
            let new = (old.unwrap_or(0) + 1).to_string();
            let _: String = self.cluster.query(node, &["SET", &counter, &new]);
            let _: i64 = self.cluster.query(node, &["DEL", &inside]);
            guard.release().await.unwrap();
        }
        overlaps
    }

    async fn both_contend(&self) {
        let times = 40;
        for (node, kind) in ["mutex", "fair", "write"].into_iter().enumerate() {
            let name = self.cluster.key_at(node, &format!("hot{kind}"));
            let counter = format!("{{{name}}}");
            let java = self.java.lock_of(kind, &name);
            let theirs = java.contend(times as usize, &counter, "a");
            let ours = self.contend(kind, &name, times).await;
            assert_eq!((ours, theirs.await.unwrap().as_str()), (0, "0"), "{kind}");
            let counted: u64 = self.cluster.query(node, &["GET", &counter]);
            assert_eq!(counted, 2 * times, "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sharded_channels_each_side_excludes_and_wakes_the_other() {
    let pair = Pair::start(true, ClusterChannels::Sharded).await;
    pair.each_wakes_the_other().await;
    pair.both_contend().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_classic_channels_each_side_excludes_and_wakes_the_other() {
    let pair = Pair::start(false, ClusterChannels::Classic).await;
    pair.each_wakes_the_other().await;
    pair.both_contend().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_both_channel_sorts_works_with_either_client() {
    for java_is_sharded in [true, false] {
        let pair = Pair::start(java_is_sharded, ClusterChannels::Both).await;
        pair.each_wakes_the_other().await;
        pair.both_contend().await;
    }
}

/// Without a message, Java sleeps until the lease is over, and our waiters look again much sooner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_with_different_channels_we_look_for_ourselves() {
    for (java_is_sharded, channels) in [
        (true, ClusterChannels::Classic),
        (false, ClusterChannels::Sharded),
    ] {
        let pair = Pair::start(java_is_sharded, channels).await;
        let java = pair.java.mutex("k");
        java.lock("a").await;
        let begin = || tokio::spawn(pair.rust.mutex("k").wait(PUSHED).acquire());
        let waiting = pair.asleep(begin).await;
        java.unlock("a").await;
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}
