//! A server that stops answering costs nobody else anything, however many ask it: neither the keys of a cluster's other
//! masters, nor those that the connection serves which takes the place of a dead one.

use std::time::Duration;

use lock_runtime::{LockManager, LockManagerBuilder};
use tests::rate::Load;
use tests::{FaultProxy, RedisCluster, RedisServer, SentinelGroup, eventually_within};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// More than one connection may have under way.
const WAITERS: usize = 1_500;
const KEYS: usize = 4;

/// Callers who wait for a key each, and give it back at once if they get it.
fn crowd(locks: &LockManager, keys: Vec<String>) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for key in keys {
        let request = locks.mutex(key).wait(LONG);
        crowd.spawn(async move {
            if let Ok(guard) = request.acquire().await {
                let _ = guard.release().await;
            }
        });
    }
    crowd
}

fn names(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{stem}{number}")).collect()
}

/// What begins the names of locks in one slot that this node has.
fn stem_at(cluster: &RedisCluster, node: usize, tag: &str) -> String {
    format!("{{{}}}", cluster.key_at(node, tag))
}

/// A load on all masters but the second one, and the cluster.
async fn healthy_cluster() -> (RedisCluster, LockManager, Load) {
    let conf = RedisCluster::builder()
        .node_timeout(LONG)
        .line("cluster-require-full-coverage no");
    let cluster = conf.start().await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let keys = [0, 2].map(|node| names(&stem_at(&cluster, node, "load"), KEYS / 2));
    let load = Load::start(&locks, &keys.concat());
    (cluster, locks, load)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_a_frozen_master_do_not_slow_down_keys_of_the_others() {
    let (cluster, locks, load) = healthy_cluster().await;
    let keys = names(&stem_at(&cluster, 1, "crowd"), WAITERS);
    let healthy = load.during(3_000 * MS).await;
    cluster.pause(1);
    let crowd = crowd(&locks, keys);
    // Its connection counts as good at first, and as dead later.
    let frozen = load.during(6_000 * MS).await;
    frozen.assert_as_many_as(healthy);
    frozen.assert_as_soon_as(healthy);
    cluster.resume(1);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_are_sent_on_to_a_frozen_node_do_not_slow_down_the_node_that_sends_them() {
    let (cluster, locks, load) = healthy_cluster().await;
    let stem = stem_at(&cluster, 0, "crowd");
    cluster.begin_move(cluster.slot_of(&stem), 1);
    let healthy = load.during(3_000 * MS).await;
    cluster.pause(1);
    let crowd = crowd(&locks, names(&stem, WAITERS));
    let frozen = load.during(6_000 * MS).await;
    frozen.assert_as_many_as(healthy);
    frozen.assert_as_soon_as(healthy);
    cluster.resume(1);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_master_does_not_make_callers_stand_back_from_keys_of_the_others() {
    let cluster = RedisCluster::builder().node_timeout(LONG).start().await;
    let locks = patient().connect(&cluster.url()).await.unwrap();
    // More than one key can serve, so that it is handed from one caller to the next.
    let contended = vec![stem_at(&cluster, 0, "load"); 16];
    let load = Load::start(&locks, &contended);
    let healthy = load.during(3_000 * MS).await;
    let keys = names(&stem_at(&cluster, 1, "slow"), 4 * 64);
    let mut guards = Vec::new();
    for keys in keys.chunks(64) {
        cluster.pause(1);
        let mut asking = JoinSet::new();
        for key in keys {
            asking.spawn(locks.mutex(key).wait(LONG).acquire());
        }
        load.during(1_500 * MS).await;
        cluster.resume(1);
        guards.extend(asking.join_all().await);
    }
    assert!(guards.iter().all(Result::is_ok), "{guards:?}");
    // By now every request at the second master is known to take more than a second.
    let slow = load.during(6_000 * MS).await;
    slow.assert_as_many_as(healthy);
    slow.assert_as_soon_as(healthy);
}

/// Requests that are under way when their connection is given up go on for seconds.
fn patient() -> LockManagerBuilder {
    LockManager::builder().lease(LONG).call_timeout(8_000 * MS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_after_a_dead_one_serves_at_once_whatever_is_under_way_on_that() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let builder = patient().call_timeout(5_000 * MS);
    let locks = builder.connect(&proxy.url()).await.unwrap();
    let load = Load::start(&locks, &names("load", KEYS));
    let healthy = load.during(3_000 * MS).await;
    let connections = proxy.connections();
    proxy.freeze_open_connections();
    let crowd = crowd(&locks, names("crowd", WAITERS));
    // The first requests have to time out, and a sign of life is waited for.
    eventually_within(LONG, "there is another connection", async || {
        proxy.connections() > connections
    })
    .await;
    drop(load);
    let load = Load::start(&locks, &names("more", KEYS));
    load.during(3_000 * MS).await.assert_as_many_as(healthy);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_master_serves_at_once_whatever_is_under_way_at_the_frozen_one() {
    let group = SentinelGroup::start().await;
    let locks = patient().connect(&group.url()).await.unwrap();
    let load = Load::start(&locks, &names("load", KEYS));
    let healthy = load.during(3_000 * MS).await;
    let old = group.master();
    group.servers[old].sigstop();
    let crowd = crowd(&locks, names("crowd", WAITERS));
    group.moved_from(old).await;
    drop(load);
    let load = Load::start(&locks, &names("more", KEYS));
    load.during(3_000 * MS).await.assert_as_many_as(healthy);
    group.servers[old].sigcont();
    drop(crowd);
}
