//! A server that stops answering costs nobody else anything, however many ask it: neither the keys of a cluster's other
//! masters, nor those of the connection that takes the place of a dead one.
//!
//! Requests last a minute here. So a caller that has to wait for one is not served while all of them are under way. A round in
//! which a request has ended took longer, and shows nothing.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder, TryAcquire};
use tests::rate::Load;
use tests::stops::in_one_of_a_few_rounds;
use tests::{FaultProxy, RedisCluster, RedisServer, SentinelGroup, eventually_within};
use tokio::task::JoinSet;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(120);
/// The number of callers in a crowd: more than may be under way on one connection.
const CROWD: usize = 1_100;
const KEYS: usize = 4;

fn builder() -> LockManagerBuilder {
    LockManager::builder()
        .lease(6 * LONG)
        .call_timeout(LONG / 2)
}

/// A crowd of callers who ask once for a key each.
struct Crowd(JoinSet<()>);

impl Crowd {
    fn ask(locks: &LockManager, keys: &[String]) -> Self {
        let mut asking = JoinSet::new();
        for key in keys {
            let lock = locks.mutex(key);
            asking.spawn(async move {
                if let Ok(TryAcquire::Acquired(guard)) = lock.try_acquire().await {
                    let _ = guard.release().await;
                }
            });
        }
        Self(asking)
    }

    /// Returns how many callers are still waiting for their answers.
    fn is_under_way(&mut self) -> usize {
        while self.0.try_join_next().is_some() {}
        self.0.len()
    }
}

fn names(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{stem}{number}")).collect()
}

/// Returns the beginning of the names of locks in one slot that this node has.
fn stem_at(cluster: &RedisCluster, node: usize, tag: &str) -> String {
    format!("{{{}}}", cluster.key_at(node, tag))
}

/// Asks once, for a second, which causes a check of the connection.
async fn ask_impatiently(locks: &LockManager, key: &str) -> LockError {
    locks
        .mutex(key)
        .wait(1_000 * MS)
        .acquire()
        .await
        .expect_err("nobody answers")
}

/// Runs a round until the requests have outlasted it.
async fn while_asking(round: impl AsyncFnMut() -> bool) {
    in_one_of_a_few_rounds(Duration::ZERO, "requests are under way", round).await;
}

/// Freezes the second master and lets a crowd ask it for these keys, before and after its connection is given up. Keys
/// of the other masters have to be served all the while. Returns whether both crowds were still asking after that.
async fn frozen(cluster: &RedisCluster, locks: &LockManager, stem: &str) -> bool {
    let keys = [0, 2].map(|node| names(&stem_at(cluster, node, "load"), KEYS / 2));
    let load = Load::start(locks, &keys.concat());
    load.goes_on().await;
    let (first, second) = (
        names(&format!("{stem}a"), CROWD),
        names(&format!("{stem}b"), CROWD),
    );
    cluster.pause(1);
    let mut before = Crowd::ask(locks, &first);
    load.goes_on().await;
    let all_before = before.is_under_way() == CROWD;

    let probe = format!("{stem}probe");
    eventually_within(LONG, "the connection is given up", async || {
        let error = ask_impatiently(locks, &probe).await;
        error.to_string().contains("not connected")
    })
    .await;
    let mut after = Crowd::ask(locks, &second);
    load.goes_on().await;
    let all_after = after.is_under_way() == CROWD;
    cluster.resume(1);
    all_before && all_after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_does_not_slow_down_keys_of_other_masters() {
    let conf = RedisCluster::builder()
        .node_timeout(LONG)
        .line("cluster-require-full-coverage no");
    let cluster = conf.start().await;
    let locks = builder().connect(&cluster.url()).await.unwrap();
    let stem = stem_at(&cluster, 1, "crowd");
    while_asking(async || frozen(&cluster, &locks, &stem).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_to_a_frozen_node_do_not_slow_the_redirecting_node() {
    let conf = RedisCluster::builder()
        .node_timeout(LONG)
        .line("cluster-require-full-coverage no");
    let cluster = conf.start().await;
    let locks = builder().connect(&cluster.url()).await.unwrap();
    let stem = stem_at(&cluster, 0, "crowd");
    cluster.begin_move(cluster.slot_of(&stem), 1);
    while_asking(async || frozen(&cluster, &locks, &stem).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_master_makes_no_rest_at_keys_of_others_longer() {
    let cluster = RedisCluster::builder().node_timeout(LONG).start().await;
    let locks = builder().connect(&cluster.url()).await.unwrap();
    let keys = names(&stem_at(&cluster, 1, "slow"), 4 * 64);
    let contended = stem_at(&cluster, 0, "load");
    let mut guards = Vec::new();
    for keys in keys.chunks(64) {
        cluster.pause(1);
        let mut asking = JoinSet::new();
        for key in keys {
            asking.spawn(locks.mutex(key).wait(LONG).acquire());
        }
        tokio::time::sleep(1_500 * MS).await;
        cluster.resume(1);
        guards.extend(asking.join_all().await);
    }
    assert!(guards.iter().all(Result::is_ok), "{guards:?}");
    // By now, requests at the second master are known to take more than a second: four of those would be a long rest.
    // More callers want this key than it can serve, so they hand it on, and rest now and then. How long a rest is
    // tells another manager, which is served meanwhile: fifty times are a second at least.
    let beside = builder().connect(&cluster.url()).await.unwrap();
    let beside = Load::start(&beside, &[stem_at(&cluster, 0, "beside")]);
    let load = Load::start(&locks, &vec![contended; 1_000]);
    let over = Instant::now() + 12_000 * MS;
    let (mut served, mut since) = (0, 0);
    while Instant::now() < over {
        if served != load.served() {
            (served, since) = (load.served(), beside.served());
        }
        let meanwhile = beside.served() - since;
        assert!(meanwhile < 50, "a pause of {meanwhile} turns of others");
        tokio::time::sleep(5 * MS).await;
    }
    assert!(served > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_serves_despite_requests_on_the_dead_one() {
    while_asking(beside_a_dead_connection).await;
}

async fn beside_a_dead_connection() -> bool {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let locks = builder().connect(&proxy.url()).await.unwrap();
    let load = Load::start(&locks, &names("before", KEYS));
    load.goes_on().await;
    drop(load);
    let connections = proxy.connections();
    proxy.freeze_open_connections();
    let mut crowd = Crowd::ask(&locks, &names("crowd", CROWD));
    ask_impatiently(&locks, "probe").await;
    eventually_within(LONG, "there is another connection", async || {
        proxy.connections() > connections
    })
    .await;
    let load = Load::start(&locks, &names("after", KEYS));
    load.goes_on().await;
    crowd.is_under_way() > CROWD / 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_serves_at_once_despite_requests_at_a_frozen_one() {
    while_asking(beside_a_frozen_master).await;
}

async fn beside_a_frozen_master() -> bool {
    let group = SentinelGroup::start().await;
    let locks = builder().connect(&group.url()).await.unwrap();
    let load = Load::start(&locks, &names("before", KEYS));
    load.goes_on().await;
    drop(load);
    let old = group.master();
    group.servers[old].sigstop();
    let mut crowd = Crowd::ask(&locks, &names("crowd", CROWD));
    group.moved_from(old).await;
    let load = Load::start(&locks, &names("after", KEYS));
    load.goes_on().await;
    let asked = crowd.is_under_way();
    group.servers[old].sigcont();
    asked > CROWD / 2
}
