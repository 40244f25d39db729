//! Tests of servers of a quorum that are killed, frozen and restarted empty: a minority of them costs nothing, a
//! majority costs availability, none of it costs exclusion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder, MemoryStore, TryAcquire};
use tests::faults::{done_by, free_within, took};
use tests::store::CALL_TIMEOUT;
use tests::{History, Quorum, answered, eventually, eventually_within};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// The longest lease. A node has a tenth of it to answer.
const LEASE: Duration = Duration::from_secs(20);

fn builder() -> LockManagerBuilder {
    tests::builder().lease(LEASE).longest_lease(LEASE)
}

/// Asserts that somebody has the lock.
async fn is_busy(locks: &LockManager) {
    let tried = answered(async || locks.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
}

async fn manager(quorum: &Quorum) -> LockManager {
    quorum.connect(builder()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_renewed_while_a_minority_is_killed_or_frozen() {
    let mut quorum = Quorum::aged(5, LEASE).await;
    // A release that waits for every node lasts as long as a call may.
    let locks = quorum.connect(builder().call_timeout(LONG)).await;
    let other = manager(&quorum).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    eventually("every node has it", async || quorum.votes("k") == 5).await;
    quorum.kill9(0);
    quorum.server(3).sigstop();
    let watched = tokio::time::timeout(LEASE * 5 / 4, guard.lost().wait()).await;
    assert!(watched.is_err() && guard.is_held(), "{watched:?}");
    is_busy(&other).await;

    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    let watched = tokio::time::timeout(300 * MS, guard.lost().wait()).await;
    assert!(watched.is_err());
    let (released, took) = took(guard.release()).await;
    released.unwrap();
    assert!(took < LONG, "{took:?}");
    let guard = waiter.await.unwrap().unwrap();
    guard.release().await.unwrap();
    quorum.server(3).sigcont();
    quorum.restart_empty(0);
    eventually("nothing is left", async || quorum.votes("k") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_does_not_wait_for_a_frozen_node_when_it_connects() {
    let quorum = Quorum::aged(3, LEASE).await;
    quorum.server(1).sigstop();
    // A connection that nobody answers takes as long as a call may.
    let connects = async || took(manager(&quorum)).await.1 < CALL_TIMEOUT;
    eventually("it connects sooner", connects).await;
    let locks = manager(&quorum).await;
    free_within(&locks, "k", LONG).await;
    quorum.server(1).sigcont();
    let guard = locks.mutex("k").acquire().await.unwrap();
    eventually("the node is used once it is back", async || {
        free_within(&locks, "other", LONG).await;
        let seen = locks.health().await;
        seen.nodes.iter().all(|node| node.is_ok())
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_acquired_while_a_minority_is_killed_or_frozen() {
    const TIMES: u32 = 60;
    let mut quorum = Quorum::aged(5, LEASE).await;
    let locks = manager(&quorum).await;
    quorum.kill9(1);
    quorum.server(2).sigstop();
    let many = async {
        for _ in 0..TIMES {
            let guard = locks.mutex("k").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    };
    // Those that wait for the frozen node take this time each.
    let ((), took) = took(many).await;
    assert!(took < LEASE / 10 * TIMES, "{took:?}");
    // A manager that is built now finds a majority.
    let late = manager(&quorum).await;
    free_within(&late, "k", LONG).await;
    quorum.server(2).sigcont();
    quorum.restart_empty(1);
    quorum.assert_clean().await;
    eventually("the restarted node has a vote again", async || {
        let guard = late.mutex("k").acquire().await.unwrap();
        let votes = eventually_votes(&quorum).await;
        guard.release().await.unwrap();
        votes == 5
    })
    .await;
    quorum.assert_clean().await;
}

/// Returns the number of votes, including those of the nodes that answer a little later than a majority.
async fn eventually_votes(quorum: &Quorum) -> usize {
    for _ in 0..20 {
        if quorum.votes("k") == 5 {
            break;
        }
        tokio::task::yield_now().await;
    }
    quorum.votes("k")
}

#[tokio::test]
async fn without_a_majority_a_request_ends_in_its_wait_and_recovers() {
    let mut quorum = Quorum::aged(3, LEASE).await;
    let locks = manager(&quorum).await;
    let guard = locks.mutex("held").acquire().await.unwrap();
    quorum.kill9(0);
    quorum.server(1).sigstop();
    // No renewal that a majority answers was sent later than now.
    let now = Instant::now();
    // The second vote has less time than the frozen node may take.
    let waiting = locks.mutex("k").wait(600 * MS).acquire();
    let refused = done_by(now + 850 * MS, waiting).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    done_by(now + LEASE, guard.lost().wait()).await;
    assert!(!guard.is_held());
    quorum.server(1).sigcont();
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    let lazy = quorum.connect(builder().lazy(true)).await;
    lazy.mutex("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_manager_is_not_built_without_a_majority() {
    let mut quorum = Quorum::redis(3).await;
    quorum.kill9(0);
    quorum.kill9(2);
    let refused = quorum.builder().quorum(quorum.nodes()).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarted_empty_does_not_admit_a_second_holder() {
    let mut quorum = Quorum::aged(3, LEASE).await;
    let (locks, other) = (manager(&quorum).await, manager(&quorum).await);
    quorum.server(2).sigstop();
    let request = locks.mutex("k").lease(LEASE).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    assert!(quorum.server(0).exists("lock:k") && quorum.server(1).exists("lock:k"));
    quorum.restart_empty(1);
    quorum.server(2).sigcont();
    // The votes of this node and of the one that was frozen would be a majority.
    let mut asked = 0;
    while guard.is_held() {
        let second = other.mutex("k").try_acquire().await;
        let admitted = matches!(second, Ok(TryAcquire::Acquired(_)));
        assert!(!(admitted && guard.is_held()), "a second holder");
        asked += 1;
        tokio::time::sleep(5 * MS).await;
    }
    assert!(asked > 0, "the hold was over before anybody asked");
    drop(guard);

    // This is so for a manager that comes later as well, although it has not seen the restart.
    quorum.server(2).sigstop();
    let mut late = None;
    // On a busy machine, the manager may connect only when its first wait, or the node's youth, is over.
    eventually("it is told why", async || {
        let restarted = Instant::now();
        quorum.restart_empty(1);
        let late = late.insert(quorum.connect(builder().lazy(true)).await);
        match late.mutex("k").wait(LEASE / 5).acquire().await {
            Err(LockError::Unavailable { source, .. }) => source.to_string().contains("restarted"),
            other => {
                assert!(other.is_ok() && restarted.elapsed() >= LEASE, "{other:?}");
                false
            }
        }
    })
    .await;
    // After the longest lease the node counts again.
    let late = late.expect("a manager");
    let guard = late.mutex("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    quorum.server(2).sigcont();
    quorum.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_never_overlap_as_nodes_freeze_die_and_restart_empty() {
    let mut quorum = Quorum::redis(5).await;
    let history = Arc::new(History::new());
    let (stop, taken) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut contenders = tokio::task::JoinSet::new();
    for m in 0..3 {
        let locks = quorum.manager().await;
        for task in 0..2 {
            let (locks, history) = (locks.clone(), history.clone());
            let (stop, taken) = (stop.clone(), taken.clone());
            contenders.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(guard) = locks.mutex("hot").wait(LONG).acquire().await else {
                        continue;
                    };
                    let mut hold = history.begin("hot", format_args!("{m}-{task}"), None);
                    tokio::task::yield_now().await;
                    hold.seen(|| guard.is_held());
                    hold.end_as_seen();
                    taken.fetch_add(1, Ordering::Relaxed);
                    // The release may find the lock lost, or be unconfirmed: the history shows whether holds
                    // overlapped.
                    let _ = guard.release().await;
                }
            });
        }
    }
    for node in [0, 3, 1] {
        for fault in 0..2 {
            let before = taken.load(Ordering::Relaxed);
            match fault {
                0 => quorum.server(node).sigstop(),
                _ => quorum.restart_empty(node),
            }
            eventually_within(3 * LONG, "work goes on", async || {
                taken.load(Ordering::Relaxed) > before + 20
            })
            .await;
            if fault == 0 {
                quorum.server(node).sigcont();
            }
        }
        // The node has to count again before others fail, so that a majority always counts.
        tests::quorum::wait_until_it_counts(quorum.server(node)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(contender) = contenders.join_next().await {
        contender.unwrap();
    }
    assert!(history.len() > 120, "{}", history.len());
    history.assert_exclusive();
    quorum.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_may_be_made_of_servers_and_of_a_store_in_memory() {
    let servers = Quorum::aged(2, LEASE).await;
    let memory = MemoryStore::new();
    let manager = async || {
        let mut nodes = servers.nodes();
        nodes.push((&memory).into());
        let connecting = answered(async || builder().quorum(nodes.clone()).await);
        connecting.await.expect("a manager on the quorum")
    };
    let (locks, other) = (manager().await, manager().await);
    let guard = locks.mutex("k").acquire().await.unwrap();
    is_busy(&other).await;
    let watched = tokio::time::timeout(LEASE * 5 / 4, guard.lost().wait()).await;
    assert!(watched.is_err() && guard.is_held(), "{watched:?}");
    // The store in memory and one server are a majority.
    servers.server(0).sigstop();
    let watched = tokio::time::timeout(LEASE * 5 / 4, guard.lost().wait()).await;
    assert!(watched.is_err() && guard.is_held(), "{watched:?}");
    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    servers.server(0).sigcont();
    eventually("nothing is left", async || {
        servers.votes("k") == 0 && memory.held() == 0
    })
    .await;
}
