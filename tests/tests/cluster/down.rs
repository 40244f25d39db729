//! Tests of a cluster that misses a master for which there is no replica.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::{connected, free_within, renewed, took};
use tests::{Data, RedisCluster, answered, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(120);

async fn manager(cluster: &RedisCluster) -> LockManager {
    let builder = tests::builder().lease(LEASE).call_timeout(LONG / 3);
    connected(builder, &cluster.url()).await
}

/// Returns the name of a lock whose slot this node has.
fn lock_at(cluster: &RedisCluster, node: usize) -> String {
    let key = cluster.key_at(node, "lock:");
    key.strip_prefix("lock:").unwrap().to_owned()
}

#[tokio::test]
async fn a_stopped_cluster_is_unavailable_in_the_wait_and_comes_back() {
    let mut cluster = RedisCluster::builder()
        .node_timeout(4_000 * MS)
        .line("appendonly yes")
        .start()
        .await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let (here, there) = (lock_at(&cluster, 0), lock_at(&cluster, 1));
    let held = locks.mutex(&here).lease(2 * LONG).acquire().await.unwrap();
    cluster.kill9(1);
    cluster.serves(0, false).await;
    for name in [&here, &there] {
        let (refused, waited) = took(other.mutex(name).wait(1_000 * MS).acquire()).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(
            error.is_retryable() && error.to_string().contains(name),
            "{error}"
        );
        assert!(waited >= 900 * MS && waited < LONG / 2, "{waited:?}");
    }
    assert!(held.is_held(), "unknown is not lost");
    cluster.restart(1, Data::Kept).await;
    free_within(&other, &there, LONG).await;
    let tried = answered(async || other.mutex(&here).try_acquire().await).await;
    assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
    held.release().await.unwrap();
    free_within(&other, &here, LONG).await;
}

#[tokio::test]
async fn without_full_coverage_only_locks_of_missing_slots_are_lost() {
    let mut cluster = RedisCluster::builder()
        .line("appendonly yes")
        .line("cluster-require-full-coverage no")
        .start()
        .await;
    let locks = manager(&cluster).await;
    let (here, there) = (lock_at(&cluster, 0), lock_at(&cluster, 1));
    let spared = locks.mutex(&here).acquire().await.unwrap();
    let gone = locks.mutex(&there).acquire().await.unwrap();
    cluster.kill9(1);
    assert_eq!(gone.lost().wait().await, LostReason::Expired);
    renewed([&spared]).await;
    let other = manager(&cluster).await;
    free_within(&other, &lock_at(&cluster, 2), LONG / 2).await;
    let (refused, waited) = took(other.mutex(&there).wait(1_000 * MS).acquire()).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(waited < LONG / 2, "{waited:?}");
    drop(gone);
    cluster.restart(1, Data::Kept).await;
    free_within(&other, &there, LONG).await;
    spared.release().await.unwrap();
    eventually_within(LONG, "nothing is left", async || {
        cluster.stray_keys().is_empty()
    })
    .await;
}
