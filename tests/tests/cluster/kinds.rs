//! Tests of a Redis Cluster whose slots do not move: every kind of lock on every node, wake-ups, and what is refused.

use std::time::Duration;

use lock_runtime::{
    ClusterChannels, LockError, LockGuard, LockManager, LockRequest, LostReason, TryAcquire,
};
use tests::faults::{told, took};
use tests::{RedisCluster, RedisServer, documented_rights, eventually};

const MS: Duration = Duration::from_millis(1);

async fn manager(cluster: &RedisCluster) -> LockManager {
    tests::connected(&cluster.url()).await
}

/// Returns the name of a lock that this node has.
fn name_at(cluster: &RedisCluster, node: usize, stem: &str) -> String {
    let key = cluster.key_at(node, &format!("lock:{stem}"));
    key["lock:".len()..].to_owned()
}

#[tokio::test]
async fn one_seed_that_lives_is_enough_however_many_there_are() {
    let cluster = RedisCluster::start().await;
    let dead: String = (1..=8).map(|port| format!("127.0.0.1:{port},")).collect();
    let url = cluster.url().replace("redis-cluster://", "");
    let (live, _) = url.split_once(',').unwrap();
    let url = format!("redis-cluster://{dead}{live}");
    // The seeds are asked in an order that is drawn.
    for _ in 0..10 {
        let locks = tests::connected(&url).await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn every_kind_works_on_every_node() {
    let cluster = RedisCluster::start().await;
    use_every_kind(&cluster, &manager(&cluster).await).await;
}

async fn use_every_kind(cluster: &RedisCluster, locks: &LockManager) {
    for node in 0..3 {
        let name = |stem: &str| name_at(cluster, node, stem);
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let guard = locks.mutex(name("mutex")).acquire().await.unwrap();
            tokens.push(guard.fencing_token().unwrap());
            guard.release().await.unwrap();
        }
        assert!(tokens.is_sorted() && tokens[0] != tokens[2], "{tokens:?}");
        for request in [
            locks.fenced(name("fenced")),
            locks.fair(name("fair")),
            locks.read(name("rw")),
            locks.write(name("rw")),
        ] {
            let guard = request.acquire().await.unwrap();
            guard.renew(Duration::from_secs(20)).await.unwrap();
            guard.release().await.unwrap();
        }
        let write = locks.write(name("rw")).acquire().await.unwrap();
        let read = write.scope(async { locks.read(name("rw")).acquire().await });
        let read = read.await.unwrap();
        write.release().await.unwrap();
        assert_eq!(locks.inspect(name("rw")).await.unwrap().readers, 1);
        read.release().await.unwrap();

        let semaphore = locks.semaphore(name("permits"));
        assert!(semaphore.try_set_permits(3).await.unwrap());
        let two = semaphore.permits(2).acquire().await.unwrap();
        two.renew(Duration::from_secs(20)).await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        two.release().await.unwrap();
        assert!(semaphore.delete().await.unwrap());

        let plain = locks.plain_semaphore(name("plain"));
        assert!(plain.try_set_permits(1).await.unwrap());
        assert!(matches!(
            plain.permits(1).try_acquire().await.unwrap(),
            TryAcquire::Acquired(())
        ));
        plain.release(1).await.unwrap();
        assert!(plain.delete().await.unwrap());

        let latch = locks.latch(name("latch"));
        assert!(latch.try_set_count(1).await.unwrap());
        assert_eq!(latch.count_down().await.unwrap(), 0);
        latch.opened().wait_forever().await.unwrap();
    }
}

/// Returns the documentation's rules of `ACL SETUSER`, for one server and for a cluster.
fn rights() -> String {
    [
        documented_rights("ACL SETUSER locks on >PASSWORD"),
        documented_rights("ACL SETUSER locks in a cluster:"),
    ]
    .concat()
    .join(" ")
}

#[tokio::test]
async fn the_documented_rights_are_enough_in_a_cluster_too() {
    let user = format!("user locks on >secret {}", rights());
    let cluster = RedisCluster::builder().line(user).start().await;
    let url = cluster.url_with("locks:secret@", "");
    for channels in [
        ClusterChannels::Sharded,
        ClusterChannels::Classic,
        ClusterChannels::Both,
    ] {
        let connect = async || {
            let builder = tests::builder().cluster_channels(channels);
            builder.connect(&url).await.unwrap()
        };
        let (locks, other) = (connect().await, connect().await);
        use_every_kind(&cluster, &locks).await;
        let guard = locks.mutex("{m}").acquire().await.unwrap();
        let waiting = tokio::spawn(other.mutex("{m}").acquire());
        let slot = cluster.slot_of("lock:{m}");
        let to = (cluster.owner_of(slot) + 1) % 3;
        cluster.begin_move(slot, to);
        cluster.migrate_keys(slot, to);
        guard.renew(Duration::from_secs(20)).await.unwrap();
        cluster.finish_move(slot, to).await;
        assert!(locks.force_release("{m}").await.unwrap());
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    for node in &cluster.nodes {
        let refused: Vec<redis::Value> = node.query(&["ACL", "LOG"]);
        assert!(refused.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn locks_of_several_slots_are_taken_together_as_others_are() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let names: Vec<_> = (0..6).map(|number| format!("set{number}")).collect();
    let set = || locks.multi(names.iter().map(|name| locks.mutex(name.as_str())));
    let guard = set().acquire().await.unwrap();
    assert_eq!(guard.members().count(), 6);
    let other = manager(&cluster).await;
    assert!(matches!(
        other.mutex("set3").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    let guard = set().try_acquire().await.unwrap().expect("all are free");
    guard.release().await.unwrap();
    // Locks that are all in one slot are taken by one script.
    let together = ["{tag}a", "{tag}b"].map(|name| locks.mutex(name));
    let guard = locks.multi(together).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn waiters_of_every_kind_are_woken_by_either_sort_of_channel() {
    let cluster = RedisCluster::start().await;
    for channels in [
        ClusterChannels::Sharded,
        ClusterChannels::Classic,
        ClusterChannels::Both,
    ] {
        let builder = || told().cluster_channels(channels);
        let holder = builder().connect(&cluster.url()).await.unwrap();
        let waiter = builder().connect(&cluster.url()).await.unwrap();
        for node in 0..3 {
            let name = cluster.key_at(node, &format!("{channels:?}"));
            // Each lock has a name of its own, because the channel of the one before would still be listened to.
            let [m, f, rw] = ["m", "f", "rw"].map(|kind| format!("{kind}:{{{name}}}"));
            for (name, held, wanted) in [
                (&m, holder.mutex(m.as_str()), waiter.mutex(m.as_str())),
                (&f, holder.fair(f.as_str()), waiter.fair(f.as_str())),
                (&rw, holder.write(rw.as_str()), waiter.read(rw.as_str())),
            ] {
                let guard = held.acquire().await.unwrap();
                let listens = || listeners(&cluster, node, name, channels) > 0;
                is_woken(guard, wanted, listens).await;
            }
        }
    }
}

/// Releases `held` once somebody waits for it and listens, and asserts that this wakes that waiter.
async fn is_woken(held: LockGuard, wanted: LockRequest, listens: impl Fn() -> bool) {
    let waiting = tokio::spawn(wanted.acquire());
    eventually("the other one listens", async || listens()).await;
    // Then it asks once more.
    tokio::time::sleep(20 * MS).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

fn listeners(cluster: &RedisCluster, node: usize, name: &str, channels: ClusterChannels) -> usize {
    let ask = match channels {
        ClusterChannels::Classic => "CHANNELS",
        _ => "SHARDCHANNELS",
    };
    let all: Vec<String> = cluster.query(node, &["PUBSUB", ask]);
    all.iter().filter(|channel| channel.contains(name)).count()
}

#[tokio::test]
async fn mixed_fleets_wake_each_other_where_one_side_uses_both() {
    let cluster = RedisCluster::start().await;
    let with = |channels| told().cluster_channels(channels);
    let both = with(ClusterChannels::Both);
    let both = both.connect(&cluster.url()).await.unwrap();
    for channels in [ClusterChannels::Sharded, ClusterChannels::Classic] {
        let one = with(channels).connect(&cluster.url()).await.unwrap();
        for (holder, waiter, waits) in [
            (&both, &one, channels),
            (&one, &both, ClusterChannels::Both),
        ] {
            let guard = holder.mutex("k").acquire().await.unwrap();
            let node = cluster.owner_of_key("lock:k");
            let listens = || listeners(&cluster, node, "k", waits) > 0;
            is_woken(guard, waiter.mutex("k"), listens).await;
        }
    }
}

#[tokio::test]
async fn only_a_node_with_a_listener_gets_a_pubsub_connection() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let subscribers = |node: usize| {
        let list: String = cluster.query(node, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines().filter(|line| !line.is_empty()).count()
    };
    eventually("one hears the control channel", async || {
        (0..3).map(subscribers).sum::<usize>() == 1
    })
    .await;
    let far = (0..3).find(|&node| subscribers(node) == 0).unwrap();
    let name = name_at(&cluster, far, "k");
    let other = manager(&cluster).await;
    let before = subscribers(far);
    let guard = other.mutex(name.as_str()).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex(name.as_str()).acquire());
    eventually("the waiter listens there", async || {
        subscribers(far) == before + 1
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_forced_release_ends_a_hold_at_any_node_of_the_cluster() {
    let cluster = RedisCluster::start().await;
    let (locks, operator) = (manager(&cluster).await, manager(&cluster).await);
    for node in 0..3 {
        let name = name_at(&cluster, node, "k");
        let guard = locks.mutex(name.as_str()).acquire().await.unwrap();
        assert!(operator.force_release(name.as_str()).await.unwrap());
        // A renewal would say that it was refused.
        assert_eq!(guard.lost().await, LostReason::ForceReleased);
    }
}

#[tokio::test]
async fn names_with_keys_in_several_slots_are_refused_before_sending() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    for name in ["a{b", "a}b", "x{}y", "{}"] {
        for refused in [
            locks.mutex(name).acquire().await.err(),
            locks.read(name).try_acquire().await.err(),
            locks.inspect(name).await.err(),
            locks.force_release(name).await.err(),
            locks.latch(name).count().await.err(),
        ] {
            let text = format!("{refused:?}");
            assert!(
                matches!(refused, Some(LockError::InvalidName { .. })) && text.contains("slots"),
                "{name}: {text}"
            );
        }
    }
    for name in ["a{b}c", "{a}{b}"] {
        let guard = locks.write(name).acquire().await.unwrap();
        guard.release().await.unwrap();
        let latch = locks.latch(name);
        assert!(latch.try_set_count(1).await.unwrap());
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guard = locks.mutex("a{b").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_is_no_cluster_and_what_cannot_be_one_is_said() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "redis-cluster://");
    let error = tests::builder().connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    assert!(error.to_string().contains("redis://"), "{error}");

    let cluster = RedisCluster::builder().requirepass("secret").start().await;
    let guard = manager(&cluster).await.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    let url = cluster.url_with(":hunter2@", "");
    let error = tests::builder().connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("127.0.0.1") && !text.contains("hunter2"),
        "{text}"
    );

    let url = cluster.url_with("", "/1");
    let error = tests::builder().connect(&url).await;
    assert!(matches!(error, Err(LockError::InvalidConfig { .. })));
    let error = LockManager::connect("redis-cluster://127.0.0.1:1")
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_unusable_server_fails_a_lazy_managers_first_call_at_once() {
    let plain = RedisServer::start();
    let guarded = RedisServer::builder().requirepass("secret").start();
    let first_call = async |server: &RedisServer| {
        let url = format!("redis-cluster://:hunter2@{}", server.addr());
        let locks = tests::builder().lazy(true).connect(&url).await;
        let request = locks.unwrap().mutex("k").wait(240_000 * MS);
        let (answer, waited) = took(request.acquire()).await;
        assert!(waited < 120_000 * MS, "no wait can help: {waited:?}");
        answer.unwrap_err()
    };
    let error = first_call(&plain).await;
    assert!(!error.is_retryable(), "{error}");
    let error = first_call(&guarded).await;
    assert!(matches!(error, LockError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn any_node_that_answers_leads_to_all_of_them() {
    let cluster = RedisCluster::start().await;
    let one = cluster.nodes[2].addr();
    let url = format!("redis-cluster://127.0.0.1:1,{one}");
    let locks = tests::connected(&url).await;
    for node in 0..3 {
        let name = name_at(&cluster, node, "k");
        let guard = locks.mutex(name.as_str()).acquire().await.unwrap();
        assert!(cluster.stands_at(node, &format!("lock:{name}")));
        guard.release().await.unwrap();
    }
}
