//! Tests that a lock has at most one holder at a time, with tokens that rise, whatever contends for it.
//!
//! `LOCK_TESTS_LONG=1` runs the long variant, with at least 100,000 recorded acquisitions per store.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::faults::given_back;
use tests::{History, Store};

const WAIT: Duration = Duration::from_secs(60);

/// Returns the number of acquisitions in all: `short` by default, more in the long variant.
fn acquisitions(short: usize) -> usize {
    if std::env::var_os("LOCK_TESTS_LONG").is_some() {
        120_000
    } else {
        short
    }
}

/// Runs `tasks` tasks for every manager, each of which takes the keys in turn, `rounds` times in all.
async fn contend(
    managers: Vec<LockManager>,
    keys: &'static [&'static str],
    tasks: usize,
    rounds: usize,
) -> Arc<History> {
    let history = Arc::new(History::new());
    let mut contenders = tokio::task::JoinSet::new();
    for (m, manager) in managers.into_iter().enumerate() {
        for task in 0..tasks {
            let (manager, history) = (manager.clone(), Arc::clone(&history));
            contenders.spawn(async move {
                let mut lost = 0;
                for round in 0..rounds {
                    let key = keys[(task + round) % keys.len()];
                    let guard = manager.mutex(key).wait(WAIT).acquire().await.unwrap();
                    let token = guard.fencing_token().map(|token| token.get());
                    let mut hold = history.begin(key, format_args!("{m}-{task}"), token);
                    tokio::task::yield_now().await;
                    let is_held = hold.seen(|| guard.is_held());
                    hold.end_as_seen();
                    match guard.release().await {
                        Ok(()) => assert!(is_held),
                        Err(LockError::Lost { .. }) => lost += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                lost
            });
        }
    }
    let lost: usize = contenders.join_all().await.into_iter().sum();
    // What a release has given to this process lasts for a second at first, and a busy machine may stop it for longer.
    assert!(lost <= history.len() / 100, "{lost} of {}", history.len());
    history
}

async fn check(store: &Store, managers: usize, keys: &'static [&'static str], short: usize) {
    let tasks = 8;
    // Each acquisition of a quorum costs a round trip to every node.
    let short = if store.is_quorum() { short / 4 } else { short };
    let rounds = acquisitions(short).div_ceil(managers * tasks);
    let mut connected = Vec::new();
    for _ in 0..managers {
        connected.push(store.manager().await);
    }
    let history = contend(connected, keys, tasks, rounds).await;
    assert_eq!(history.len(), rounds * tasks * managers);
    history.assert_exclusive();
}

tests::suite! {
    also on a quorum:
    async fn tasks_of_one_manager_never_hold_at_once(store: &mut Store) {
        check(store, 1, &["hot"], 4_000).await;
    }

    async fn several_managers_never_hold_at_once(store: &mut Store) {
        check(store, 4, &["hot"], 4_000).await;
    }

    async fn several_keys_are_exclusive_each(store: &mut Store) {
        check(store, 3, &["a", "b", "c", "d", "e"], 4_000).await;
    }
}

/// Runs the memory store with real threads and a real clock; the suite runs it on one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_exclusive_across_threads() {
    let store = Store::memory();
    check(&store, 4, &["hot", "cold"], 20_000).await;
    store.assert_deserted().await;
}

/// Takes two keys at once, in one order: nobody waits for ever, and both stay exclusive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_taken_in_one_order_do_not_deadlock() {
    let store = Store::redis();
    let history = Arc::new(History::new());
    let mut contenders = tokio::task::JoinSet::new();
    for m in 0..3 {
        let manager = store.manager().await;
        for task in 0..4 {
            let (manager, history) = (manager.clone(), Arc::clone(&history));
            contenders.spawn(async move {
                for _ in 0..20 {
                    let holder = format!("{m}-{task}");
                    let outer = manager.mutex("outer").wait(WAIT).acquire().await.unwrap();
                    let mut first = history.begin("outer", &holder, None);
                    let inner = manager.mutex("inner").wait(WAIT).acquire().await.unwrap();
                    let mut second = history.begin("inner", &holder, None);
                    second.seen(|| inner.is_held());
                    second.end_as_seen();
                    given_back(inner).await;
                    first.seen(|| outer.is_held());
                    first.end_as_seen();
                    given_back(outer).await;
                }
            });
        }
    }
    while let Some(contender) = contenders.join_next().await {
        contender.unwrap();
    }
    assert_eq!(history.len(), 3 * 4 * 20 * 2);
    history.assert_exclusive();
    store.assert_deserted().await;
}
