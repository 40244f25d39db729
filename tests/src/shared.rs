//! Topologies that the tests of one process share. Each test has a namespace of its own in them.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use lock_runtime::{LockManager, LockManagerBuilder};
use redis::Value;
use tokio::runtime::Builder;

use crate::cluster::{RedisCluster, slot_of};
use crate::eventually::eventually;
use crate::faults::connected;
use crate::quorum::Quorum;
use crate::sentinel::SentinelGroup;
use crate::server::RedisServer;

/// The longest lease of a shared quorum. A node has a tenth of it to answer, which has to be enough on a busy machine.
/// The servers count only once they are older than it.
pub const QUORUM_LEASE: Duration = Duration::from_secs(15);

/// Servers that several tests use at once. Nobody restarts, freezes or flushes them.
///
/// They are kept in a static, which is never dropped: the servers end with this process, however it ends.
#[derive(Debug)]
pub enum Topology {
    /// A master, a replica, a sentinel.
    Sentinel(SentinelGroup),
    /// Three masters.
    Cluster(RedisCluster),
    /// Three servers that know nothing of each other.
    Quorum(Quorum),
}

impl Topology {
    /// Returns the process's master behind a sentinel. The first test that asks starts it.
    pub fn sentinel() -> &'static Self {
        static SHARED: OnceLock<Topology> = OnceLock::new();
        SHARED.get_or_init(|| {
            started(async || Self::Sentinel(SentinelGroup::builder(1, 1).steady().start().await))
        })
    }

    /// Returns the process's cluster. The first test that asks starts it.
    pub fn cluster() -> &'static Self {
        static SHARED: OnceLock<Topology> = OnceLock::new();
        SHARED.get_or_init(|| started(async || Self::Cluster(RedisCluster::start().await)))
    }

    /// Returns the process's quorum of servers. The first test that asks starts it.
    pub fn quorum() -> &'static Self {
        static SHARED: OnceLock<Topology> = OnceLock::new();
        SHARED.get_or_init(|| started(async || Self::Quorum(Quorum::aged(3, QUORUM_LEASE).await)))
    }

    fn masters(&self) -> &[RedisServer] {
        match self {
            Self::Sentinel(group) => &group.servers[..1],
            Self::Cluster(cluster) => &cluster.nodes,
            Self::Quorum(quorum) => quorum.servers(),
        }
    }
}

/// Starts a topology on a thread of its own, because the caller's may belong to a runtime already.
fn started(start: impl AsyncFnOnce() -> Topology + Send + 'static) -> Topology {
    let thread = std::thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(start())
    });
    thread.join().expect("the shared servers start")
}

/// One test's part of a topology.
#[derive(Debug)]
pub struct Share {
    topology: &'static Topology,
    namespace: String,
}

impl Share {
    /// Returns the part of the test of that name.
    pub fn of(topology: &'static Topology, test: &str) -> Self {
        // It is marked at both ends, so that no test's namespace is within another's.
        let namespace = format!("@{test}:");
        Self {
            topology,
            namespace,
        }
    }

    /// Connects a manager of this test.
    pub async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        let builder = builder.namespace(&self.namespace);
        match self.topology {
            Topology::Sentinel(group) => connected(builder, &group.url()).await,
            Topology::Cluster(cluster) => connected(builder, &cluster.url()).await,
            Topology::Quorum(quorum) => {
                let builder = builder.lease(QUORUM_LEASE).longest_lease(QUORUM_LEASE);
                quorum.connect(builder).await
            }
        }
    }

    /// Returns whether several servers keep its locks together.
    pub fn is_quorum(&self) -> bool {
        matches!(self.topology, Topology::Quorum(_))
    }

    /// Deletes every key of this test, and the fences. The other tests' tokens go on by the clock.
    pub fn flush(&self) {
        (0..self.topology.masters().len()).for_each(|master| self.forget(master));
    }

    /// Does the same as [`flush`](Self::flush) at one of the masters.
    pub fn forget(&self, master: usize) {
        let server = &self.topology.masters()[master];
        let own: Vec<String> = server.query(&["KEYS", &format!("*{}*", self.namespace)]);
        let fences: Vec<String> = server.query(&["KEYS", "lock:fence:*"]);
        let mut slots: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for key in own.into_iter().chain(fences) {
            slots.entry(slot_of(&key)).or_default().push(key);
        }
        // All keys of a slot are deleted at once, so that a lock loses all of its keys at once, as in a flush.
        for keys in slots.values() {
            let keys = keys.iter().map(String::as_str);
            let _: Value = server.query(&["DEL"].into_iter().chain(keys).collect::<Vec<_>>());
        }
    }

    /// Waits until nothing of this test is left except the control channels of managers that still live.
    pub async fn assert_clean(&self) {
        self.assert_gone("no key of this test is left", RedisServer::stray_keys)
            .await;
        self.assert_gone("only its control channels are subscribed to", |server| {
            let mut channels = server.channels();
            channels.retain(|channel| !channel.contains("control"));
            channels
        })
        .await;
    }

    /// Waits until nothing of this test is left at all. The managers must have been dropped before.
    pub async fn assert_deserted(&self) {
        self.assert_gone(
            "none of its channels is subscribed to",
            RedisServer::channels,
        )
        .await;
        self.assert_gone("no manager's record is left", RedisServer::records)
            .await;
        self.assert_clean().await;
    }

    async fn assert_gone(&self, what: &str, named: impl Fn(&RedisServer) -> Vec<String>) {
        let is_own = |name: &String| name.contains(&self.namespace);
        let own = || {
            let servers = self.topology.masters().iter();
            servers.flat_map(&named).filter(is_own).collect::<Vec<_>>()
        };
        eventually(what, async || own().is_empty()).await;
    }
}
