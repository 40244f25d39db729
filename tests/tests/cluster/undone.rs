//! Tests of acquires that nobody waits for any more when their slot leaves the node: what they did is undone at the
//! node that has the slot by then.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::faults::{connected, free_within};
use tests::{CommandStats, RedisCluster, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(360);
const KEY: &str = "lock:{m}";
/// Far less than a lease.
const SOON: Duration = Duration::from_secs(120);

/// Starts a cluster and returns it with a manager with a connection to each node, the slot, and the node that the slot
/// goes to.
async fn scene() -> (RedisCluster, LockManager, u16, usize) {
    let cluster = RedisCluster::start().await;
    // A compensation ends by itself when the request has run out of time. This timeout is too long for that to happen
    // in these tests.
    let builder = tests::builder().call_timeout(LEASE / 6);
    let locks = connected(builder, &cluster.url()).await;
    free_within(&locks, "{m}", LEASE).await;
    let slot = cluster.slot_of(KEY);
    let to = (cluster.owner_of(slot) + 1) % 3;
    (cluster, locks, slot, to)
}

fn stands_anywhere(cluster: &RedisCluster) -> bool {
    let slot = cluster.slot_of(KEY);
    (0..3).any(|node| {
        cluster
            .keys_in_slot(node, slot)
            .iter()
            .any(|key| key == KEY)
    })
}

/// Polls the acquire once. That queues the request, and the connection's task sends it.
async fn is_under_way(mut acquire: Pin<&mut impl Future>) {
    let pending = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_pending()));
    assert!(pending.await);
}

/// Returns how often a node has said that another one has a slot.
fn redirections(cluster: &RedisCluster) -> u64 {
    let of_node = |node| {
        let errors: String = cluster.query(node, &["INFO", "errorstats"]);
        let moved = errors.lines();
        let moved = moved.filter_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        moved
            .map(|count| count.trim().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    (0..3).map(of_node).sum()
}

/// Asserts that soon nothing is left of the acquire, and nobody is busy with it any more.
async fn is_undone(cluster: &RedisCluster, locks: &LockManager) {
    eventually_within(SOON, "it is given back", async || !stands_anywhere(cluster)).await;
    // What is not done yet is repeated while the shutdown waits for it.
    let scripts = || -> u64 {
        let of_node = |node| CommandStats::of(node).scripts();
        cluster.nodes.iter().map(of_node).sum()
    };
    let before = scripts();
    locks.shutdown().await;
    let sent = scripts() - before;
    println!("SENT {sent}");
    // On a busy machine, more of them are repeated: after pauses that grow to a second.
    assert!(sent <= 20, "{sent} scripts");
    assert!(!stands_anywhere(cluster));
    // It goes where it is sent, and does not ask the old node again until the table of slots is read for another reason.
    let redirections = redirections(cluster);
    println!("MOVED {redirections}");
    assert!(redirections <= 4, "{redirections}");
}

/// A lock that was granted at the old node, and whose answer nobody read, is given back at the new one.
#[tokio::test]
async fn what_was_granted_before_a_slot_moved_is_undone_after_it() {
    for finished in [true, false] {
        let (cluster, locks, slot, to) = scene().await;
        {
            let mut acquire = pin!(locks.mutex("{m}").lease(LEASE).acquire());
            is_under_way(acquire.as_mut()).await;
            eventually_within(SOON, "it is granted", async || stands_anywhere(&cluster)).await;
            cluster.begin_move(slot, to);
            cluster.migrate_keys(slot, to);
            if finished {
                cluster.finish_move(slot, to).await;
            }
            assert!(stands_anywhere(&cluster));
        }
        is_undone(&cluster, &locks).await;
    }
}

/// The old node has redirected the request, and nobody has read that.
#[tokio::test]
async fn what_a_node_did_not_do_any_more_needs_no_undoing_for_long() {
    let (cluster, locks, slot, to) = scene().await;
    cluster.move_slot(slot, to).await;
    {
        let mut acquire = pin!(locks.mutex("{m}").lease(LEASE).acquire());
        is_under_way(acquire.as_mut()).await;
        tokio::time::sleep(50 * MS).await;
    }
    is_undone(&cluster, &locks).await;
}
