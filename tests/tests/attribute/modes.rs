//! Tests of `mode = ..`, the kind of lock that an annotated function takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, distributed_lock};
use tests::faults::kept_in_order;
use tests::{CommandStats, RedisServer, Store, eventually};
use tokio::sync::Barrier;

#[distributed_lock(key = "page:{id}", mode = read, wait = "0s", manager = locks, guard = lease)]
async fn look(locks: &LockManager, id: u64) -> Result<bool, LockError> {
    assert!(lease.is_held());
    Ok(lease.fencing_token().is_some())
}

#[distributed_lock(key = "page:{id}", mode = write, wait = "0s", manager = locks, guard = lease)]
async fn edit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
    // A nested reader shares the writer's hold.
    Box::pin(look(locks, id)).await?;
    Ok(lease.fencing_token().is_some())
}

#[distributed_lock(key = "page:{id}", mode = read, wait = "0s", manager = locks)]
async fn look_then_edit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
    edit(locks, id).await
}

#[distributed_lock(key = "queue", mode = fair, wait = "60s", manager = locks, guard = lease)]
async fn in_turn(locks: &LockManager) -> Result<Option<u64>, LockError> {
    Ok(lease.fencing_token().map(|token| token.get()))
}

/// Lets three calls in at a time. Each waits inside for two others.
#[distributed_lock(key = "exports:{format}", mode = semaphore(3), wait = "60s", manager = locks)]
async fn export(
    locks: &LockManager,
    format: &str,
    inside: &AtomicUsize,
    three: &Barrier,
) -> Result<(), LockError> {
    let others = inside.fetch_add(1, Ordering::SeqCst);
    assert!(others < 3, "{others} others are inside");
    three.wait().await;
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(key = "places", mode = semaphore(places), wait = "0s", manager = locks, guard = lease)]
async fn take_place(locks: &LockManager, places: u64) -> Result<Option<u64>, LockError> {
    assert!(lease.is_held());
    Ok(lease.fencing_token().map(|token| token.get()))
}

#[distributed_lock(keys = ["from:{from}", "to:{to}"], mode = semaphore(2), wait = "0s", manager = locks, guard = lease)]
async fn take_two_places(locks: &LockManager, from: u64, to: u64) -> Result<usize, LockError> {
    Ok(lease.members().count())
}

tests::suite! {
    async fn a_semaphore_admits_the_attributes_number_of_calls_at_a_time(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await];
        let (inside, three) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(3)));
        let calls: Vec<_> = (0..9)
            .map(|call| {
                let (locks, inside, three) = (managers[call % 2].clone(), inside.clone(), three.clone());
                tokio::spawn(async move { export(&locks, "csv", &inside, &three).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let semaphore = managers[0].semaphore("exports:csv");
        // As a number that calls have set, it goes when all permits are back.
        eventually("all permits are back", async || semaphore.available().await.unwrap() == 0).await;
        assert!(!semaphore.delete().await.unwrap());
    }

    async fn a_call_sets_the_permits_and_another_number_changes_nothing(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let semaphore = locks.semaphore("places").in_all(2);
        assert_eq!(take_place(&locks, 2).await.unwrap(), None, "a permit has no token");
        let one = semaphore.permits(1).acquire().await.unwrap();
        take_place(&other, 5).await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        let another = semaphore.permits(1).acquire().await.unwrap();
        assert!(matches!(take_place(&other, 5).await, Err(LockError::Busy { .. })));
        one.release().await.unwrap();
        another.release().await.unwrap();
        assert!(!semaphore.delete().await.unwrap(), "calls need no number while nobody is inside");
    }

    async fn several_semaphores_are_set_one_by_one(store: &mut Store) {
        let locks = store.manager().await;
        assert_eq!(take_two_places(&locks, 1, 2).await.unwrap(), 2);
        for name in ["from:1", "to:2"] {
            let semaphore = locks.semaphore(name).in_all(2);
            eventually("both are back", async || semaphore.available().await.unwrap() == 2).await;
            assert!(!semaphore.delete().await.unwrap());
        }
    }

    async fn a_senseless_number_of_permits_is_refused_before_any_request(store: &mut Store) {
        let locks = store.manager().await;
        for places in [0, u64::MAX] {
            let error = take_place(&locks, places).await.unwrap_err();
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
        }
        assert!(!locks.semaphore("places").delete().await.unwrap(), "nothing was set");
    }

    async fn readers_share_and_a_writer_is_alone(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let reading = other.read("page:7").acquire().await.unwrap();
        assert!(!look(&locks, 7).await.unwrap(), "a read hold has no token");
        assert!(matches!(edit(&locks, 7).await, Err(LockError::Busy { .. })));
        reading.release().await.unwrap();
        assert!(edit(&locks, 7).await.unwrap(), "a write hold has one");
        let writing = other.write("page:7").acquire().await.unwrap();
        assert!(matches!(look(&locks, 7).await, Err(LockError::Busy { .. })));
        writing.release().await.unwrap();
    }

    async fn a_reader_cannot_become_a_writer(store: &mut Store) {
        let locks = store.manager().await;
        let error = look_then_edit(&locks, 7).await.unwrap_err();
        assert!(!error.is_retryable() && !matches!(error, LockError::Busy { .. }), "{error}");
    }

    async fn fair_calls_are_served_in_the_order_of_asking(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        kept_in_order(Duration::ZERO, async || {
            let first = other.fair("queue").acquire().await.unwrap();
            let mut calls = Vec::new();
            for queued in 1..=5_u64 {
                let locks = if queued % 2 == 0 { locks.clone() } else { other.clone() };
                calls.push(tokio::spawn(async move { in_turn(&locks).await.unwrap().unwrap() }));
                eventually("it is in the queue", async || {
                    store_waiters(&other).await == queued
                })
                .await;
            }
            first.release().await.unwrap();
            let mut tokens = Vec::new();
            for call in calls {
                tokens.push(tokio::time::timeout(Duration::from_secs(120), call).await.unwrap().unwrap());
            }
            // Tokens follow the order of asking.
            tokens.is_sorted()
        })
        .await;
    }
}

async fn store_waiters(locks: &LockManager) -> u64 {
    locks.inspect("queue").await.unwrap().waiters
}

#[tokio::test]
async fn a_call_under_a_semaphore_is_two_scripts() {
    let server = RedisServer::start();
    let connect = async || tests::connected(&server.url()).await;
    let (locks, other) = (connect().await, connect().await);
    take_two_places(&locks, 1, 2).await.unwrap(); // loads the scripts
    drop(other.mutex("warm").acquire().await.unwrap());
    eventually("both managers have said who they are", async || {
        let keys = server.keys();
        keys.iter()
            .filter(|key| key.contains("lock-manager:"))
            .count()
            == 2
            && !server.exists("lock:warm")
    })
    .await;
    let mut before = CommandStats::of(&server);
    let mut scripts = || {
        let now = CommandStats::of(&server);
        let scripts = now.since(&before).scripts();
        before = now;
        scripts
    };
    // A manager's first request for permits looks at the rights of all their scripts.
    for (locks, sent) in [(&locks, 2), (&other, 3), (&locks, 2), (&other, 2)] {
        take_place(locks, 2).await.unwrap();
        assert_eq!(scripts(), sent, "acquired, released");
    }
}
