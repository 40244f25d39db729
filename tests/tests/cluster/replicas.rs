//! Tests of locks that the replicas of a cluster's node have before they are handed out: frozen replicas, slots that
//! move, masters that die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LostReason, Replicas};
use redis::Value;
use tests::faults::{connected, free_within, renewed, took};
use tests::{CommandStats, Data, RedisCluster, eventually, eventually_within};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// That of holds which are to be renewed.
const LEASE: Duration = Duration::from_secs(18);

/// Starts three masters with a replica each. No node is soon given up for being silent. With an even longer timeout,
/// the nodes would hear from each other too seldom.
async fn patient() -> RedisCluster {
    let builder = RedisCluster::builder().replicas();
    builder.node_timeout(10_000 * MS).start().await
}

async fn manager(cluster: &RedisCluster, replicas: Replicas) -> LockManager {
    let builder = tests::builder().replicas(replicas);
    connected(builder, &cluster.url()).await
}

/// Returns a name whose lock is at this master.
fn name_at(cluster: &RedisCluster, node: usize) -> String {
    let key = cluster.key_at(node, "lock:k");
    key.trim_start_matches("lock:").to_owned()
}

/// Returns whether the node has the key, whether it is a master or not.
fn has(cluster: &RedisCluster, node: usize, key: &str) -> bool {
    let slot = cluster.slot_of(key);
    cluster.keys_in_slot(node, slot).iter().any(|it| it == key)
}

/// Asserts that the error says why replicas did not confirm. The last try of a wait may have so little time that not
/// even the master answers.
fn assert_unconfirmed(error: &LockError) {
    let text = error.to_string();
    let known = ["replicas", "no answer", "no time was left"];
    assert!(matches!(error, LockError::Unavailable { .. }), "{text}");
    assert!(known.iter().any(|known| text.contains(known)), "{text}");
    assert!(error.is_retryable());
}

/// Tries until the refusal contains `why`: on a busy machine, a `WAIT` may end too late to be reported.
async fn refused_with(locks: &LockManager, name: &str, why: &str) {
    eventually("it says how many confirmed", async || {
        let refused = locks.mutex(name).try_acquire().await.unwrap_err();
        assert_unconfirmed(&refused);
        refused.to_string().contains(why)
    })
    .await;
}

async fn nothing_is_left(cluster: &RedisCluster) {
    eventually_within(3 * LONG, "no key of a hold is left", async || {
        cluster.stray_keys().is_empty()
    })
    .await;
}

/// Freezes the replica and cuts its connection: what the master writes from now on is in no buffer on its way there.
fn stop_replication(cluster: &RedisCluster, master: usize) {
    cluster.pause(cluster.replica_of(master));
    let _: Value = cluster.query(master, &["CLIENT", "KILL", "TYPE", "replica"]);
}

#[tokio::test]
async fn locks_of_every_kind_are_at_the_replica_before_the_grant() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::majority()).await;
    for round in 0..5 {
        for master in 0..3 {
            let replica = cluster.replica_of(master);
            let tag = name_at(&cluster, master);
            let name = |kind: &str| format!("{{lock:{tag}}}{kind}");
            let key = |kind: &str| format!("lock:{}", name(kind));
            let is_there = |kind: &str| has(&cluster, replica, &key(kind));
            for (request, kind) in [
                (locks.mutex(name("m")), "m"),
                (locks.fenced(name("e")), "e"),
                (locks.fair(name("f")), "f"),
                (locks.read(name("r")), "r"),
                (locks.write(name("w")), "w"),
            ] {
                let guard = request.acquire().await.unwrap();
                assert!(is_there(kind), "{kind}, round {round}");
                guard.release().await.unwrap();
            }
            let many = locks.multi(["a", "b"].map(|kind| locks.mutex(name(kind))));
            let guard = many.acquire().await.unwrap();
            assert!(is_there("a") && is_there("b"), "round {round}");
            guard.release().await.unwrap();
            let permits = locks.semaphore(name("s"));
            permits.try_set_permits(5).await.unwrap();
            let guard = permits.permits(3).acquire().await.unwrap();
            assert!(is_there("s:timeout"), "round {round}");
            guard.release().await.unwrap();
            permits.delete().await.unwrap();
        }
        // The locks of this set are at three nodes, so they are acquired one by one.
        let apart = locks.multi([0, 1, 2].map(|node| locks.mutex(name_at(&cluster, node))));
        let guard = apart.acquire().await.unwrap();
        for master in 0..3 {
            let key = format!("lock:{}", name_at(&cluster, master));
            assert!(has(&cluster, cluster.replica_of(master), &key));
        }
        guard.release().await.unwrap();
    }
    nothing_is_left(&cluster).await;
    locks.shutdown().await;
    for node in &cluster.nodes {
        node.assert_deserted().await;
    }
}

#[tokio::test]
async fn a_frozen_replica_keeps_locks_of_its_node_back_and_no_others() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::at_least(1).within(300 * MS)).await;
    let (here, there) = (name_at(&cluster, 0), name_at(&cluster, 1));
    let replica = cluster.replica_of(0);
    cluster.pause(replica);
    refused_with(&locks, &here, "only 0 of 1 replicas").await;
    let (refused, waited) = took(locks.mutex(&*here).wait(1_500 * MS).acquire()).await;
    assert_unconfirmed(&refused.unwrap_err());
    assert!(waited >= 1_400 * MS && waited < LONG, "{waited:?}");
    let fair = locks.fair(&*here).wait(500 * MS).acquire().await;
    assert_unconfirmed(&fair.unwrap_err());
    let pair = ["a", "b"].map(|kind| locks.mutex(format!("{{lock:{here}}}{kind}")));
    let pair = locks.multi(pair).wait(500 * MS).acquire().await;
    assert_unconfirmed(&pair.unwrap_err());
    // A request of this manager waits for the replica for longer than others may take.
    let stubborn = tests::builder().lease(2 * LONG);
    let stubborn = stubborn.call_timeout(LONG / 2);
    let stubborn = stubborn.replicas(Replicas::at_least(1).within(LONG / 2));
    let stubborn = connected(stubborn, &cluster.url()).await;
    let waiting = tokio::spawn(stubborn.mutex(&*here).wait(10 * LONG).acquire());
    eventually("it is being confirmed", async || {
        has(&cluster, 0, &format!("lock:{here}"))
    })
    .await;
    for _ in 0..20 {
        free_within(&stubborn, &there, LONG / 4).await;
    }
    assert!(!waiting.is_finished());
    cluster.resume(replica);
    let guard = waiting.await.unwrap().unwrap();
    assert!(has(&cluster, replica, &format!("lock:{here}")));
    guard.release().await.unwrap();
    nothing_is_left(&cluster).await;
    eventually("the replica has forgotten it, too", async || {
        !has(&cluster, replica, &format!("lock:{here}"))
    })
    .await;
}

#[tokio::test]
async fn renewals_are_confirmed_at_each_node_by_its_own_replicas() {
    let cluster = patient().await;
    let strict = Replicas::at_least(1).within(2_000 * MS).renewals(true);
    let locks = manager(&cluster, strict).await;
    let (here, there) = (name_at(&cluster, 0), name_at(&cluster, 1));
    let ends = locks.mutex(&*here).lease(LEASE).acquire().await.unwrap();
    let lives = locks.mutex(&*there).lease(LEASE).acquire().await.unwrap();
    renewed([&ends, &lives]).await;
    cluster.pause(cluster.replica_of(0));
    let lost = tokio::time::timeout(3 * LONG, ends.lost().wait()).await;
    assert_eq!(lost.unwrap(), LostReason::Expired);
    renewed([&lives]).await;
    lives.release().await.unwrap();
    drop(ends);
    nothing_is_left(&cluster).await;
}

/// Acquires locks in one slot, one after the other, and keeps each, until told to stop.
fn collect(
    locks: &LockManager,
    tag: String,
    stop: Arc<AtomicBool>,
) -> tokio::task::JoinHandle<Vec<LockGuard>> {
    let locks = locks.clone();
    tokio::spawn(async move {
        let mut guards = Vec::new();
        while !stop.load(SeqCst) {
            let name = format!("{{lock:{tag}}}{}", guards.len());
            // The lease is longer than a failover. A lock that was given back at a master that died then may live as
            // long at the next.
            let request = locks.mutex(name).lease(LONG * 2 / 3).wait(300 * MS);
            if let Ok(guard) = request.acquire().await {
                guards.push(guard);
            }
        }
        guards
    })
}

/// No replica has what the master wrote after replication had stopped. Without waiting for replicas, those locks would
/// have been handed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_that_was_handed_out_is_lost_with_its_master() {
    let mut cluster = RedisCluster::builder().replicas().start().await;
    let replicas = Replicas::majority().within(200 * MS);
    let locks = manager(&cluster, replicas).await;
    let tag = name_at(&cluster, 0);
    let slot = cluster.slot_of(&format!("lock:{tag}"));
    let rounds = match std::env::var_os("LOCK_TESTS_LONG") {
        Some(_) => 10,
        None => 1,
    };
    for round in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let collecting = collect(&locks, tag.clone(), stop.clone());
        let master = cluster.owner_of(slot);
        let count = || cluster.keys_in_slot(master, slot).len();
        eventually("some are held", async || count() > 10).await;
        stop_replication(&cluster, master);
        let before = CommandStats::of(&cluster.nodes[master]);
        eventually(
            "more is granted by the master, and known to nobody else",
            async || {
                let since = CommandStats::of(&cluster.nodes[master]).since(&before);
                since.calls("wait") >= 3
            },
        )
        .await;
        let replica = cluster.partner_of(master);
        cluster.kill9(master);
        cluster.resume(replica);
        assert_eq!(cluster.replaced(master).await, replica);
        stop.store(true, SeqCst);
        let guards = collecting.await.unwrap();
        assert!(guards.len() > 5, "round {round}: {}", guards.len());
        for guard in &guards {
            assert!(guard.is_held());
            let key = format!("lock:{}", guard.name());
            assert!(has(&cluster, replica, &key), "round {round}: {key} is lost");
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        // There is no replica any more, and no lock without one.
        let refused = locks.mutex(&*tag).wait(600 * MS).acquire().await;
        assert_unconfirmed(&refused.unwrap_err());
        cluster.restart(master, Data::Lost).await;
        let guard = locks.mutex(&*tag).wait(LONG).acquire().await.unwrap();
        assert!(has(&cluster, master, &format!("lock:{tag}")));
        guard.release().await.unwrap();
        nothing_is_left(&cluster).await;
    }
}

#[tokio::test]
async fn a_slot_move_in_a_confirmation_lets_the_new_node_grant() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::at_least(1).within(1_000 * MS)).await;
    let name = name_at(&cluster, 0);
    let key = format!("lock:{name}");
    let slot = cluster.slot_of(&key);
    let replica = cluster.replica_of(0);
    // From Valkey 8 on, a frozen replica holds up moves, too. There the first node that was asked confirms the lock.
    let server: String = cluster.query(0, &["INFO", "server"]);
    let waits_for_replicas = server.contains("valkey_version");
    for _ in 0..3 {
        cluster.pause(replica);
        let waiting = tokio::spawn(locks.mutex(&*name).wait(LONG).acquire());
        eventually("it is being confirmed", async || has(&cluster, 0, &key)).await;
        if waits_for_replicas {
            cluster.resume(replica);
        }
        cluster.begin_move(slot, 1);
        cluster.finish_move(slot, 1).await;
        let guard = waiting.await.unwrap().unwrap();
        assert!(has(&cluster, 1, &key) && has(&cluster, cluster.replica_of(1), &key));
        assert!(guard.is_held());
        guard.release().await.unwrap();
        cluster.resume(replica);
        nothing_is_left(&cluster).await;
        cluster.move_slot(slot, 0).await;
    }
}

/// The old node would forget the lock, and the node that has it could not say so, so no replica can help.
#[tokio::test]
async fn a_node_that_is_only_importing_the_slot_confirms_nothing() {
    let cluster = patient().await;
    let replicas = Replicas::majority().within(2_000 * MS).renewals(true);
    let locks = manager(&cluster, replicas).await;
    let tag = name_at(&cluster, 0);
    let slot = cluster.slot_of(&format!("lock:{tag}"));
    let name = |kind: &str| format!("{{lock:{tag}}}{kind}");
    let held = async |kind: &str| {
        let request = locks.mutex(name(kind)).lease(LEASE).wait(LONG);
        request.acquire().await.unwrap()
    };
    let (stays, goes) = (held("stays").await, held("goes").await);
    cluster.begin_move(slot, 1);
    let refused = locks.mutex(name("new")).wait(3_000 * MS).acquire().await;
    assert_unconfirmed(&refused.unwrap_err());
    eventually("it was given back", async || {
        let key = format!("lock:{}", name("new"));
        !has(&cluster, 0, &key) && !has(&cluster, 1, &key)
    })
    .await;
    assert!(cluster.migrate_key(&format!("lock:{}", name("goes")), 1));
    let lost = tokio::time::timeout(3 * LONG, goes.lost().wait()).await;
    assert_eq!(lost.unwrap(), LostReason::Expired);
    assert!(stays.is_held(), "its node still answers for it");
    cluster.finish_move(slot, 1).await;
    renewed([&stays]).await;
    stays.release().await.unwrap();
    drop(goes);
    held("new").await.release().await.unwrap();
    nothing_is_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_granted_and_released_as_slots_and_masters_change() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::majority().renewals(true)).await;
    let tag = name_at(&cluster, 0);
    let slot = cluster.slot_of(&format!("lock:{tag}"));
    let stop = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicBool::new(false));
    let holds = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (locks, stop, inside) = (locks.clone(), stop.clone(), inside.clone());
        let (name, holds) = (format!("{{lock:{tag}}}"), holds.clone());
        tasks.spawn(async move {
            while !stop.load(SeqCst) {
                let request = locks.mutex(&*name).lease(3 * LONG).wait(3 * LONG);
                let guard = request.acquire().await.unwrap();
                assert!(!inside.swap(true, SeqCst), "two holders");
                tokio::time::sleep(MS).await;
                inside.store(false, SeqCst);
                guard.release().await.unwrap();
                holds.fetch_add(1, SeqCst);
            }
        });
    }
    for round in 0..6 {
        let owner = cluster.owner_of(slot);
        if round % 3 == 2 {
            cluster.failover(owner).await;
        } else {
            let masters = (0..cluster.nodes.len()).filter(|node| cluster.has_slots(*node));
            let next = masters.filter(|node| *node != owner).nth(round % 2);
            cluster.move_slot(slot, next.unwrap()).await;
        }
        let before = holds.load(SeqCst);
        eventually_within(3 * LONG, "locks are acquired and released", async || {
            holds.load(SeqCst) > before + 10
        })
        .await;
    }
    stop.store(true, SeqCst);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    nothing_is_left(&cluster).await;
}

#[tokio::test]
async fn connections_end_to_a_node_that_is_no_master_any_more() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::majority()).await;
    let name = name_at(&cluster, 0);
    let take = async || free_within(&locks, &name, LONG).await;
    take().await;
    let lanes = |node: usize| {
        let clients = cluster.nodes[node].clients();
        let of_lane = |client: &&String| client.contains("cmd=wait");
        clients.iter().filter(of_lane).count()
    };
    assert!(lanes(0) >= 1);
    let new = cluster.failover(0).await;
    take().await;
    assert!(lanes(new) >= 1);
    // The old master may come back, so it is not forgotten at once.
    eventually_within(LONG, "the old master is forgotten", async || lanes(0) == 0).await;
    take().await;
}

#[tokio::test]
async fn too_few_replicas_grant_nothing_and_the_error_counts_them() {
    let cluster = patient().await;
    let locks = manager(&cluster, Replicas::at_least(2).within(300 * MS)).await;
    refused_with(&locks, "k", "only 1 of 2 replicas").await;
    nothing_is_left(&cluster).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_by_itself_is_refused() {
    let cluster = RedisCluster::builder().masters(1).start().await;
    let builder = tests::builder().replicas(Replicas::majority());
    let refused = builder.connect(&cluster.nodes[0].url()).await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidConfig { .. }));
    assert!(
        refused.to_string().contains("redis-cluster://"),
        "{refused}"
    );
}
