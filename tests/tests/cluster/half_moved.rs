//! Tests of a slot of a Redis Cluster in the middle of its move: some of a lock's keys have arrived, and others have
//! not.

use std::time::Duration;

use lock_runtime::{LockManager, TryAcquire};
use tests::{RedisCluster, answered, eventually};

const LONG: Duration = Duration::from_secs(120);

/// Returns the managers of two processes, the slot, and the node that the slot goes to.
async fn scene(cluster: &RedisCluster) -> (LockManager, LockManager, u16, usize) {
    let connect = async || tests::connected(&cluster.url()).await;
    let slot = cluster.slot_of("lock:{m}");
    let to = (cluster.owner_of(slot) + 1) % 3;
    (connect().await, connect().await, slot, to)
}

#[tokio::test]
async fn a_reader_with_its_lease_at_the_old_node_keeps_writers_out() {
    let cluster = RedisCluster::start().await;
    let (locks, other, slot, to) = scene(&cluster).await;
    let from = cluster.owner_of(slot);
    // This hold gives the slot a fence.
    let first = locks.mutex("x{m}").acquire().await.unwrap();
    first.release().await.unwrap();
    let reader = locks.read("k{m}").acquire().await.unwrap();
    let writing = tokio::spawn(other.write("k{m}").wait(LONG).acquire());
    let waits = |keys: &[String]| keys.iter().find(|key| key.contains("waiting")).cloned();
    eventually("the writer waits", async || {
        waits(&cluster.keys_in_slot(from, slot)).is_some()
    })
    .await;
    let keys = cluster.keys_in_slot(from, slot);
    let mark = waits(&keys).unwrap();
    let _: () = cluster.query(from, &["SET", &mark, "1", "PX", "600000"]);

    cluster.begin_move(slot, to);
    for key in keys.iter().filter(|key| !key.contains("rwlock_timeout")) {
        assert!(cluster.migrate_key(key, to), "{key}");
    }
    // This request does not come from the caller that waits.
    let asked = locks.write("k{m}").try_acquire().await;
    assert!(
        !matches!(asked, Ok(TryAcquire::Acquired(_))),
        "beside a reader: {asked:?}"
    );
    assert!(reader.is_held() && !writing.is_finished());

    cluster.migrate_keys(slot, to);
    cluster.finish_move(slot, to).await;
    let tried = answered(async || other.write("k{m}").try_acquire().await).await;
    assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
    reader.release().await.unwrap();
    writing.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_fair_lock_with_waiters_is_released_as_its_slot_leaves() {
    let cluster = RedisCluster::start().await;
    let (locks, other, slot, to) = scene(&cluster).await;
    let guard = locks.fair("k{m}").acquire().await.unwrap();
    let waiting = tokio::spawn(other.fair("k{m}").wait(LONG).acquire());
    eventually("it queues", async || {
        locks.inspect("k{m}").await.unwrap().waiters == 1
    })
    .await;
    cluster.begin_move(slot, to);
    guard.release().await.unwrap();
    cluster.migrate_keys(slot, to);
    cluster.finish_move(slot, to).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
