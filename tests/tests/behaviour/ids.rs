//! Tests of ids: unique over all managers, rising, and never repeated after the store has lost its data.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lock_runtime::{Ids, LockError, LockManager};
use tests::Store;
use tests::eventually::PATIENCE;
use tokio::task::JoinSet;

/// Returns the next id. On a busy machine, an answer may come too late: then the source is asked again. This is `answered`
/// for tasks that are spawned: its closure would lend the source, and its future could not be sent to another thread.
async fn next(ids: &Ids) -> i64 {
    let began = Instant::now();
    loop {
        match ids.next().await {
            Err(LockError::Unavailable { .. }) if began.elapsed() < PATIENCE => {}
            next => return next.unwrap(),
        }
    }
}

/// Calls `next` so often, in as many tasks as there are sources, and returns the ids of each task in the order of its calls.
async fn at_once(sources: Vec<Ids>, calls: usize) -> Vec<Vec<i64>> {
    let mut tasks = JoinSet::new();
    for ids in sources {
        tasks.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..calls {
                got.push(next(&ids).await);
            }
            got
        });
    }
    tasks.join_all().await
}

/// Ends the managers and empties the store. A range that is drawn ahead may still be on its way: the store answers a new
/// manager after that.
async fn forget(store: &mut Store, managers: &[LockManager]) {
    for locks in managers {
        locks.shutdown().await;
    }
    store.manager().await.shutdown().await;
    store.flush();
}

fn is_foreign<T: std::fmt::Debug>(answer: Result<T, LockError>, says: &str) {
    let error = answer.unwrap_err();
    let LockError::ForeignKey { key, why, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(key.ends_with("order") && why == says, "{error}");
    assert!(!error.is_retryable());
}

tests::suite! {
    async fn ids_are_positive_unique_and_rise_within_each_manager(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await];
        let sources = (0..16).map(|task| managers[task % 2].ids("order"));
        let got = at_once(sources.collect(), 50).await;
        for ids in &got {
            assert!(ids[0] > 0 && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        }
        let unique: HashSet<_> = got.iter().flatten().collect();
        assert_eq!(unique.len(), 16 * 50);
        forget(store, &managers).await;
    }

    async fn ids_of_two_processes_have_the_order_of_time(store: &mut Store) {
        let (one, other) = (store.manager().await.ids("order"), store.manager().await.ids("order"));
        let mut last = 0;
        for call in 0..20 {
            let id = if call % 2 == 0 { one.next().await } else { other.next().await };
            let id = id.unwrap();
            assert!(id > last, "{call}");
            last = id;
        }
        let many = one.take(10_000).await.unwrap();
        assert!(many[0] > last && many.is_sorted_by(|one, next| next - one == 1));
        assert!(other.next().await.unwrap() > many[9_999]);
        store.flush();
    }

    async fn a_store_that_lost_its_data_repeats_no_id(store: &mut Store) {
        let (one, other) = (store.manager().await, store.manager().await);
        for shuffled in [false, true] {
            let mut unique = HashSet::new();
            let mut expected = 0;
            for _ in 0..10 {
                for locks in [&one, &other] {
                    let ids = locks.ids("order");
                    let ids = if shuffled { ids.shuffled() } else { ids };
                    unique.insert(ids.next().await.unwrap());
                    unique.extend(ids.take(100).await.unwrap());
                    expected += 101;
                }
                store.flush();
                // The clock of a paused test stands still. Nobody loses data and gives ids in one microsecond elsewhere.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(unique.len(), expected, "shuffled: {shuffled}");
        }
    }

    async fn shuffled_ids_are_unique_and_ordered_by_the_millisecond(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await];
        let sources = (0..8).map(|task| managers[task % 2].ids("order").shuffled());
        let got = at_once(sources.collect(), 30).await;
        for ids in &got {
            assert!(ids[0] > 0 && ids.is_sorted_by_key(|id| id >> 22), "{ids:?}");
        }
        let unique: HashSet<_> = got.iter().flatten().collect();
        assert_eq!(unique.len(), 8 * 30);
        let many = managers[0].ids("order").shuffled().take(1_000).await.unwrap();
        let apart = many.windows(2).filter(|pair| (pair[1] - pair[0]).abs() > 1_000).count();
        assert!(apart > 900, "{apart} of 999 are far from their neighbours");
        forget(store, &managers).await;
    }

    async fn a_name_is_shuffled_for_all_or_for_nobody(store: &mut Store) {
        let (one, other) = (store.manager().await.ids("order"), store.manager().await.ids("order"));
        one.next().await.unwrap();
        is_foreign(other.clone().shuffled().next().await, "its ids are plain; you asked for shuffled ones");
        one.next().await.unwrap();
        store.flush();
        one.clone().shuffled().next().await.unwrap();
        is_foreign(other.next().await, "its ids are shuffled; you asked for plain ones");
        store.flush();
    }

    async fn operators_are_told_that_a_source_of_ids_is_no_lock(store: &mut Store) {
        let locks = store.manager().await;
        let ids = locks.ids("order");
        let before = ids.next().await.unwrap();
        let says = "it is a source of ids; you asked for a lock";
        is_foreign(locks.inspect("order").await, says);
        is_foreign(locks.force_release("order").await, says);
        assert!(ids.next().await.unwrap() > before);
        store.flush();
    }

    async fn many_sources_do_not_disturb_each_other(store: &mut Store) {
        let locks = store.manager().await;
        let sources = (0..50).map(|tenant| locks.ids(format!("tenant:{tenant}:order")));
        let got = at_once(sources.collect(), 3).await;
        assert!(got.iter().all(|ids| ids.is_sorted_by(|one, next| one < next)));
        forget(store, &[locks]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_keeps_no_ids_and_says_so_before_any_request() {
    let locks = Store::quorum().manager().await;
    let error = locks.ids("order").next().await.unwrap_err();
    assert!(
        matches!(error, LockError::InvalidConfig { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("keeps no ids"), "{error}");
}
