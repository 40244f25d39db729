//! Tests of a cluster that looks like one server: its one master has all slots, and the URL is that of a server. Proxies in
//! front of a cluster look like that as well.

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager, TryAcquire};
use tests::faults::{connected, free_within, renewed};
use tests::{FaultProxy, RedisCluster, eventually};

const LEASE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(120);

async fn scene() -> (RedisCluster, LockManager) {
    let cluster = RedisCluster::builder().masters(1).start().await;
    let builder = tests::builder().lease(LEASE).call_timeout(LEASE / 2);
    let locks = connected(builder, &cluster.nodes[0].url()).await;
    (cluster, locks)
}

/// Returns holds of a kind, each in a slot of its own.
async fn held(locks: &LockManager, kind: &str) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..5 {
        let name = format!("{kind}{number}");
        let request = match kind {
            "read" => locks.read(name),
            "fair" => locks.fair(name),
            "permits" => {
                let semaphore = locks.semaphore(name);
                assert!(semaphore.try_set_permits(2).await.unwrap());
                semaphore.permits(2)
            }
            _ => locks.mutex(name),
        };
        guards.push(request.acquire().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn holds_of_different_slots_are_renewed() {
    let (_cluster, locks) = scene().await;
    let mut guards = Vec::new();
    for kind in ["mutex", "read", "fair", "permits"] {
        guards.extend(held(&locks, kind).await);
    }
    renewed(&guards).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_set_of_different_slots_is_taken_whole() {
    let (_cluster, locks) = scene().await;
    let set = || locks.multi(["a", "b", "c"].map(|name| locks.mutex(name)));
    for _ in 0..2 {
        let guard = set().acquire().await.unwrap();
        assert!(locks.inspect("c").await.unwrap().holder.is_some());
        guard.release().await.unwrap();
    }
    let taken = locks.mutex("b").acquire().await.unwrap();
    let tried = set().try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
    assert!(locks.inspect("a").await.unwrap().holder.is_none());
    drop(taken);
}

#[tokio::test]
async fn requests_for_different_slots_go_out_beside_each_other() {
    let (_cluster, locks) = scene().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..50 {
        let locks = locks.clone();
        tasks.spawn(async move {
            for round in 0..10 {
                free_within(&locks, &format!("{task}:{round}"), LONG).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

#[tokio::test]
async fn the_new_master_of_the_only_shard_is_found_behind_its_name() {
    let cluster = RedisCluster::builder().masters(1).replicas().start().await;
    let (old, new) = (0, cluster.replica_of(0));
    let proxy = FaultProxy::start(cluster.nodes[old].addr()).await;
    let builder = tests::builder().lease(LONG).call_timeout(LEASE / 2);
    let locks = connected(builder, &proxy.url()).await;
    let held = locks.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    eventually("it waits", async || {
        locks.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    // Open connections stay at the old master, which answers `MOVED` as a replica.
    proxy.lead_to(cluster.nodes[new].addr());
    assert_eq!(cluster.failover(old).await, new);
    free_within(&locks, "new", LONG).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
