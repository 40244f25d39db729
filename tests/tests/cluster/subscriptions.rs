//! Tests of who listens where in a Redis Cluster: slots that leave a node take their channels with them, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::faults::{given_back, told};
use tests::{RedisCluster, eventually};
use tokio::task::JoinHandle;

const MS: Duration = Duration::from_millis(1);

async fn manager(cluster: &RedisCluster) -> LockManager {
    told().connect(&cluster.url()).await.unwrap()
}

/// A lock that is held, with a task that waits for it.
struct Contended {
    name: String,
    slot: u16,
    guard: LockGuard,
    waiting: JoinHandle<LockGuard>,
}

/// Acquires `count` locks, each in a slot of its own of that node, and starts a waiter for each. Returns once the
/// waiters listen.
async fn contended(
    cluster: &RedisCluster,
    node: usize,
    count: usize,
    [locks, other]: [&LockManager; 2],
) -> Vec<Contended> {
    let mut all = Vec::new();
    for number in 0..count {
        let key = cluster.key_at(node, &format!("lock:{number}-"));
        let name = key["lock:".len()..].to_owned();
        let guard = locks.mutex(&name).acquire().await.unwrap();
        let request = other.mutex(&name);
        let waiting = tokio::spawn(async move { request.acquire().await.unwrap() });
        let slot = cluster.slot_of(&key);
        let one = Contended {
            name,
            slot,
            guard,
            waiting,
        };
        eventually("it listens", async || listens(cluster, node, &one.name)).await;
        all.push(one);
    }
    all
}

fn listens(cluster: &RedisCluster, node: usize, name: &str) -> bool {
    let channels: Vec<String> = cluster.query(node, &["PUBSUB", "SHARDCHANNELS"]);
    let end = format!(":{{lock:{name}}}");
    channels.iter().any(|channel| channel.ends_with(&end))
}

/// Returns the ids of the node's clients that have sharded subscriptions.
fn sessions(cluster: &RedisCluster, node: usize) -> BTreeSet<u64> {
    let list: String = cluster.query(node, &["CLIENT", "LIST"]);
    let field = |line: &str, name: &str| -> Option<u64> {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(key, _)| *key == name)?.1.parse().ok()
    };
    let listening = list
        .lines()
        .filter(|line| field(line, "ssub").is_some_and(|count| count > 0));
    listening.filter_map(|line| field(line, "id")).collect()
}

/// Releases each lock and asserts that its waiter is woken by that, wherever its channel is.
async fn are_woken(contended: Vec<Contended>) {
    for one in contended {
        one.guard.release().await.unwrap();
        given_back(one.waiting.await.unwrap()).await;
    }
}

#[tokio::test]
async fn a_slot_that_leaves_a_node_takes_only_its_own_channels() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let contended = contended(&cluster, 0, 6, [&locks, &other]).await;
    let before = sessions(&cluster, 0);
    assert_eq!(before.len(), 1);
    for one in &contended[..4] {
        cluster.move_slot(one.slot, 1).await;
        eventually("it listens at the new node", async || {
            listens(&cluster, 1, &one.name)
        })
        .await;
    }
    assert_eq!(sessions(&cluster, 0), before, "nothing else has moved");
    are_woken(contended).await;
}

/// The message by which a node ends a subscription comes between the answers to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_that_come_and_go_work_while_slots_leave_their_node() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let contended = contended(&cluster, 0, 8, [&locks, &other]).await;
    let before = sessions(&cluster, 0);
    let stays = cluster.key_at(0, "stays");
    let over = Arc::new(AtomicBool::new(false));
    let heard = Arc::new(AtomicUsize::new(0));
    let churn: Vec<_> = (0..4)
        .map(|task| {
            let (locks, other, stays) = (locks.clone(), other.clone(), stays.clone());
            let (over, heard) = (over.clone(), heard.clone());
            tokio::spawn(async move {
                for round in 0.. {
                    if over.load(SeqCst) {
                        return;
                    }
                    let name = format!("{{{stays}}}-{task}-{round}");
                    let guard = locks.mutex(&name).acquire().await.unwrap();
                    let waiting = tokio::spawn(other.mutex(&name).acquire());
                    tokio::time::sleep(3 * MS).await;
                    guard.release().await.unwrap();
                    given_back(waiting.await.unwrap().unwrap()).await;
                    heard.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for one in &contended {
        cluster.move_slot(one.slot, 1).await;
        let so_far = heard.load(SeqCst);
        eventually("it listens at the new node, and others go on", async || {
            listens(&cluster, 1, &one.name) && heard.load(SeqCst) >= so_far + 8
        })
        .await;
    }
    over.store(true, SeqCst);
    for task in churn {
        task.await.unwrap();
    }
    assert_eq!(sessions(&cluster, 0), before, "nothing else has moved");
    are_woken(contended).await;
}
