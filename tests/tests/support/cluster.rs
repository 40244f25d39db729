//! The cluster of the support library does what the cluster tests rely on.

use std::time::Duration;

use redis::RedisResult;
use tests::{Data, RedisCluster};

fn get(cluster: &RedisCluster, node: usize, key: &str) -> RedisResult<Option<String>> {
    let value = cluster.nodes[node].command(&["GET", key])?;
    redis::from_redis_value(value).map_err(Into::into)
}

/// Returns the code of a redirection, without its address.
fn refusal(cluster: &RedisCluster, node: usize, key: &str) -> String {
    let error = get(cluster, node, key).unwrap_err();
    error.code().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn every_node_takes_the_keys_of_its_slots_and_no_others() {
    let cluster = RedisCluster::start().await;
    assert_eq!(cluster.awake(), [0, 1, 2]);
    for node in 0..3 {
        let key = cluster.key_at(node, "k");
        assert_eq!(cluster.owner_of_key(&key), node);
        let slot: u16 = cluster.query(node, &["CLUSTER", "KEYSLOT", &key]);
        assert_eq!(cluster.slot_of(&key), slot);
        let _: String = cluster.query(node, &["SET", &key, "v"]);
        assert_eq!(cluster.nodes[node].keys(), std::slice::from_ref(&key));
        assert_eq!(refusal(&cluster, (node + 1) % 3, &key), "MOVED");
    }
}

#[tokio::test]
async fn a_cluster_ends_with_its_value() {
    let cluster = RedisCluster::builder().masters(1).start().await;
    let addr = cluster.nodes[0].addr();
    drop(cluster);
    assert!(std::net::TcpStream::connect(addr).is_err());
}

#[tokio::test]
async fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::builder().requirepass("secret").start().await;
    assert!(
        cluster
            .url()
            .starts_with("redis-cluster://:secret@127.0.0.1:")
    );
    let key = cluster.key_at(0, "k");
    let slot = cluster.slot_of(&key);
    let _: String = cluster.query(0, &["SET", &key, "v"]);
    cluster.move_slot(slot, 2).await;
    assert_eq!(cluster.owner_of(slot), 2);
    assert_eq!(get(&cluster, 2, &key), Ok(Some("v".to_owned())));
    assert_eq!(refusal(&cluster, 0, &key), "MOVED");
    cluster.move_slot(slot, 0).await;
    assert_eq!(get(&cluster, 0, &key), Ok(Some("v".to_owned())));
}

#[tokio::test]
async fn a_slot_moves_step_by_step() {
    let cluster = RedisCluster::builder().masters(2).start().await;
    let stem = cluster.key_at(0, "t");
    let [a, b] = ["a", "b"].map(|name| format!("{{{stem}}}{name}"));
    let slot = cluster.slot_of(&a);
    let _: String = cluster.query(0, &["MSET", &a, "1", &b, "2"]);
    cluster.begin_move(slot, 1);
    assert_eq!(
        get(&cluster, 0, &a),
        Ok(Some("1".to_owned())),
        "not moved yet"
    );
    assert!(cluster.migrate_key(&a, 1) && !cluster.migrate_key(&a, 1));
    assert_eq!(refusal(&cluster, 0, &a), "ASK");
    let both = cluster.nodes[0].command(&["MGET", &a, &b]).unwrap_err();
    assert_eq!(both.code(), Some("TRYAGAIN"));
    assert!(cluster.stands_at(1, &a) && !cluster.stands_at(1, &b));
    cluster.finish_move(slot, 1).await;
    assert_eq!(get(&cluster, 1, &b), Ok(Some("2".to_owned())));
    assert!(cluster.keys_in_slot(0, slot).is_empty());
    cluster.begin_move(slot, 0);
    cluster.cancel_move(slot, 0);
    assert_eq!(get(&cluster, 1, &b), Ok(Some("2".to_owned())));
}

#[tokio::test]
async fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let mut cluster = RedisCluster::builder().replicas().start().await;
    let key = cluster.key_at(1, "k");
    let _: String = cluster.query(1, &["SET", &key, "v"]);
    assert_eq!(cluster.query::<i64>(1, &["WAIT", "1", "20000"]), 1);
    assert_eq!(cluster.kill_master(1).await, 4);
    assert_eq!(cluster.owner_of_key(&key), 4);
    assert_eq!(get(&cluster, 4, &key), Ok(Some("v".to_owned())));
    cluster.restart(1, Data::Lost).await;
    assert_eq!(cluster.replica_of(4), 1);
    assert_eq!(cluster.failover(4).await, 1);
    assert_eq!(get(&cluster, 1, &key), Ok(Some("v".to_owned())));
}

#[tokio::test]
async fn a_frozen_master_is_replaced_and_gives_way_when_it_thaws() {
    let timeout = Duration::from_millis(3_000);
    let conf = RedisCluster::builder().replicas().node_timeout(timeout);
    let cluster = conf.start().await;
    cluster.pause(0);
    assert_eq!(cluster.replaced(0).await, 3);
    cluster.resume(0);
    assert_eq!(cluster.replaced(0).await, 3);
}
