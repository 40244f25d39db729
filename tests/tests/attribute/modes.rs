//! `mode = ..`: which kind of lock an annotated function takes.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, distributed_lock};
use tests::{Store, eventually};

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

tests::suite! {
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
        let mut last = 0;
        for call in calls {
            let token = tokio::time::timeout(Duration::from_secs(60), call).await.unwrap().unwrap();
            assert!(token > last, "tokens follow the order of asking");
            last = token;
        }
    }
}

async fn store_waiters(locks: &LockManager) -> u64 {
    locks.inspect("queue").await.unwrap().waiters
}
