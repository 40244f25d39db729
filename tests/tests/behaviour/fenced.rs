//! A fenced lock is a mutex whose tokens are a counter of its own, the one that Redisson's `RFencedLock` keeps.

use lock_runtime::TryAcquire;
use std::time::Duration;

use tests::Store;

const MS: Duration = Duration::from_millis(1);

tests::suite! {
    async fn a_fenced_lock_counts_its_holds_from_one(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        for expected in 1..=20 {
            let locks = if expected % 3 == 0 { &a } else { &b };
            let guard = locks.fenced("k").acquire().await.unwrap();
            assert_eq!(guard.fencing_token().map(|token| token.get()), Some(expected));
            guard.release().await.unwrap();
        }
        let other = a.fenced("other").acquire().await.unwrap();
        assert_eq!(other.fencing_token().map(|token| token.get()), Some(1), "each name has its own");
        other.release().await.unwrap();
    }

    async fn a_hold_that_is_handed_over_has_the_next_token(store: &mut Store) {
        let locks = store.manager().await;
        let first = locks.fenced("k").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.fenced("k").wait(60_000 * MS).acquire());
        tests::eventually("it waits", async || {
            locks.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(second.fencing_token().map(|token| token.get()), Some(2));
        second.release().await.unwrap();
    }

    async fn a_nested_request_shares_the_hold_and_its_token(store: &mut Store) {
        let locks = store.manager().await;
        let (outer, inner) = locks
            .fenced("k")
            .run(async |lease| {
                let nested = locks.fenced("k").acquire().await.unwrap();
                (lease.fencing_token(), nested.fencing_token())
            })
            .await
            .unwrap();
        assert_eq!(outer, inner);
    }

    async fn a_mutex_and_a_fenced_lock_of_one_name_exclude_each_other(store: &mut Store) {
        let locks = store.manager().await;
        let fenced = locks.fenced("k").acquire().await.unwrap();
        assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        fenced.release().await.unwrap();
        let mutex = locks.mutex("k").acquire().await.unwrap();
        assert!(matches!(locks.fenced("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        mutex.release().await.unwrap();
        let fenced = locks.fenced("k").acquire().await.unwrap();
        assert_eq!(fenced.fencing_token().map(|token| token.get()), Some(2), "the mutex did not count");
        fenced.release().await.unwrap();
    }

    async fn a_manager_without_tokens_still_fences_a_fenced_lock(store: &mut Store) {
        let locks = store.connect(tests::builder().fencing(false)).await;
        let guard = locks.fenced("k").acquire().await.unwrap();
        assert!(guard.fencing_token().is_some());
        drop(guard);
        let mutex = locks.mutex("other").acquire().await.unwrap();
        assert!(mutex.fencing_token().is_none());
        drop(mutex);
    }
}
