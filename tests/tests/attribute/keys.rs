//! `keys = [..]`: a function that runs under several locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, distributed_lock, key};
use tests::{Store, eventually};

use crate::witness::is_held;

#[distributed_lock(keys = ["account:{from}", "account:{to}"], wait = "60s", manager = locks, guard = lease)]
async fn transfer(locks: &LockManager, from: &str, to: &str) -> Result<Vec<String>, LockError> {
    tokio::task::yield_now().await;
    Ok(lease
        .members()
        .map(|member| member.name.to_owned())
        .collect())
}

#[distributed_lock(keys = ids.iter().map(|id| key!("item:{id}")), on_busy = skip, manager = locks)]
async fn restock(locks: &LockManager, ids: &[u64]) -> Result<Option<usize>, LockError> {
    Ok(Some(ids.len()))
}

#[distributed_lock(keys = ["account:{from}", "account:{to}"], manager = locks)]
async fn hang(locks: &LockManager, runs: &AtomicBool, from: u64, to: u64) -> Result<(), LockError> {
    runs.store(true, Ordering::SeqCst);
    std::future::pending().await
}

tests::suite! {
    async fn every_key_of_the_list_is_held_while_the_body_runs(store: &mut Store) {
        let locks = store.manager().await;
        let names = transfer(&locks, "b:1", "a").await.unwrap();
        assert_eq!(names, ["account:a", "account:b%3A1"], "in the order of the keys, escaped");
        assert_eq!(transfer(&locks, "a", "a").await.unwrap(), ["account:a"], "a key twice is one lock");
    }

    async fn opposite_orders_do_not_deadlock(store: &mut Store) {
        let (one, other) = (store.manager().await, store.manager().await);
        let mut calls = tokio::task::JoinSet::new();
        for call in 0..40 {
            let locks = if call % 2 == 0 { one.clone() } else { other.clone() };
            calls.spawn(async move {
                let (from, to) = if call % 4 < 2 { ("a", "b") } else { ("b", "a") };
                transfer(&locks, from, to).await
            });
        }
        let mut lost = 0;
        while let Some(names) = calls.join_next().await {
            match names.unwrap() {
                Ok(names) => assert_eq!(names, ["account:a", "account:b"]),
                // What a message gives lasts for a second at first, and a busy machine may stop the process for longer.
                Err(LockError::Lost { .. }) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(lost <= 4, "{lost} of 40");
    }

    async fn a_list_of_keys_may_come_out_of_an_expression(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        assert_eq!(restock(&locks, &[3, 1, 2]).await.unwrap(), Some(3));
        let busy = other.mutex("item:2").acquire().await.unwrap();
        assert_eq!(restock(&locks, &[3, 1, 2]).await.unwrap(), None, "all or nothing");
        eventually("nothing is kept", async || !is_held(&other, "item:1").await).await;
        busy.release().await.unwrap();
        let empty = restock(&locks, &[]).await.unwrap_err();
        assert!(matches!(empty, LockError::InvalidConfig { .. }), "{empty}");
    }

    async fn the_body_is_dropped_when_one_of_its_locks_is_lost(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let runs = Arc::new(AtomicBool::new(false));
        let call = tokio::spawn({
            let (locks, runs) = (locks.clone(), runs.clone());
            async move { hang(&locks, &runs, 1, 2).await }
        });
        // Take the lock away only once the body runs: a set that loses a lock before it is complete asks for it again
        // and reports no loss.
        eventually("it runs", async || runs.load(Ordering::SeqCst)).await;
        assert!(other.force_release("account:2").await.unwrap());
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(&error, LockError::Lost { name, .. } if name == "account:2"), "{error}");
        let free = other.mutex("account:1").wait(Duration::from_secs(60));
        store.given_back(free.acquire().await.unwrap()).await;
    }
}
