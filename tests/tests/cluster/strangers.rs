//! Tests of a Redis Cluster of which a master is gone, and another server answers at its address: it does not have the
//! locks, and would grant them.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LostReason};
use redis::Value;
use tests::faults::{connected, use_once};
use tests::{CommandStats, Data, RedisCluster, RedisServer, answered, eventually};

/// It ends while the stranger is there.
const LEASE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(120);

async fn manager(cluster: &RedisCluster) -> LockManager {
    connected(tests::builder().lease(LEASE), &cluster.url()).await
}

/// Starts a server without a cluster.
fn alone(port: u16) -> RedisServer {
    RedisServer::builder().start_at(port)
}

/// Starts the only master of another cluster.
async fn of_another_cluster(port: u16) -> RedisServer {
    let stranger = RedisServer::builder().cluster_node().start_at(port);
    let _: Value = stranger
        .ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    eventually("its cluster is well", async || {
        let info: String = stranger.ask(&["CLUSTER", "INFO"]).await;
        info.contains("cluster_state:ok")
    })
    .await;
    stranger
}

/// A master that is gone, and what it leaves.
struct Scene {
    cluster: RedisCluster,
    name: String,
    /// Of the process that had the lock.
    locks: LockManager,
    held: LockGuard,
    other: LockManager,
}

/// Takes a lock of a master, and kills the master.
async fn gone(masters: usize) -> Scene {
    let builder = RedisCluster::builder().masters(masters);
    let builder = builder.line("cluster-require-full-coverage no");
    let mut cluster = builder.start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let key = cluster.key_at(0, "lock:");
    let name = key["lock:".len()..].to_owned();
    // Both know the master.
    use_once(other.mutex(&name).wait(LONG)).await;
    let held = locks.mutex(&name).acquire().await.unwrap();
    cluster.kill9(0);
    Scene {
        cluster,
        name,
        locks,
        held,
        other,
    }
}

impl Scene {
    /// Waits until the other process is told what answers, and asserts that nobody believes it. Then the master comes back.
    async fn believes_nothing(self, stranger: RedisServer, what: &str) {
        eventually("what answers is named", async || {
            match self.other.mutex(&*self.name).try_acquire().await {
                Err(error @ LockError::Unavailable { .. }) => error.to_string().contains(what),
                answer => panic!("{answer:?}"),
            }
        })
        .await;
        let lost = self.held.lost().wait().await;
        assert_eq!(lost, LostReason::Expired, "nobody said that it is lost");
        let asked = CommandStats::of(&stranger);
        for sent in ["evalsha", "eval", "set", "subscribe", "ssubscribe"] {
            assert_eq!(asked.calls(sent), 0, "{sent}");
        }
        assert!(asked.calls("hello") > 0, "nobody came there");
        self.comes_back(stranger).await;
    }

    /// Starts the master again, in the stranger's place, and waits until the lock is served.
    async fn comes_back(mut self, stranger: RedisServer) {
        drop(stranger);
        self.cluster.restart(0, Data::Kept).await;
        for locks in [&self.other, &self.locks] {
            use_once(locks.mutex(&self.name).wait(LONG)).await;
        }
    }
}

#[tokio::test]
async fn a_lone_server_at_a_masters_address_is_not_believed() {
    let scene = gone(3).await;
    let stranger = alone(scene.cluster.nodes[0].port());
    let what = "is a server without a cluster";
    scene.believes_nothing(stranger, what).await;
}

#[tokio::test]
async fn another_clusters_node_at_a_masters_address_is_not_believed() {
    let scene = gone(3).await;
    let stranger = of_another_cluster(scene.cluster.nodes[0].port()).await;
    let what = "is a node of another cluster";
    scene.believes_nothing(stranger, what).await;
}

#[tokio::test]
async fn a_wholly_replaced_cluster_serves_once_the_holds_are_over() {
    let scene = gone(1).await;
    let replaced = of_another_cluster(scene.cluster.nodes[0].port()).await;
    let lost = scene.held.lost().wait().await;
    assert_eq!(lost, LostReason::Expired, "nobody said that it is lost");
    // It counts after half a minute without the nodes that were known.
    for locks in [&scene.locks, &scene.other] {
        let taken = async || locks.mutex(&*scene.name).wait(LONG).acquire().await;
        let guard = answered(taken).await.unwrap();
        assert!(replaced.exists(&format!("lock:{}", scene.name)));
        guard.release().await.unwrap();
    }
}
