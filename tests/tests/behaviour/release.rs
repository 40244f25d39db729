//! Tests of giving a lock back: by hand, by drop, after a loss; and never somebody else's.

use std::time::Duration;

use lock_runtime::{LockError, LostReason, TryAcquire};
use tests::{Store, answered, eventually, had_at_once};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

async fn is_free(locks: &lock_runtime::LockManager, key: &str) -> bool {
    let tried = answered(async || locks.mutex(key).try_acquire().await).await;
    match tried.unwrap() {
        TryAcquire::Acquired(guard) => guard.release().await.is_ok(),
        TryAcquire::Busy { .. } => false,
    }
}

tests::suite! {
    also on a quorum:
    async fn a_release_frees_the_key_before_it_returns(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        for _ in 0..20 {
            let guard = holder.mutex("k").acquire().await.unwrap();
            guard.release().await.unwrap();
            let guard = had_at_once(async || other.mutex("k").try_acquire().await).await;
            guard.release().await.unwrap();
        }
    }

    async fn a_dropped_guard_is_released_in_the_background(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        drop(guard);
        let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
        store.given_back(next).await;
    }

    async fn a_guard_dropped_by_a_panic_is_released(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let request = holder.mutex("k");
        let panicked = tokio::spawn(async move {
            let _guard = request.acquire().await.unwrap();
            panic!("as planned");
        });
        assert!(panicked.await.unwrap_err().is_panic());
        let body = holder.mutex("body");
        let panicked = tokio::spawn(async move {
            body.run(async |_| panic!("as planned")).await
        });
        assert!(panicked.await.unwrap_err().is_panic());
        for key in ["k", "body"] {
            eventually("the key is free", async || is_free(&other, key).await).await;
        }
    }

    async fn a_guard_may_be_dropped_outside_of_any_runtime(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        eventually("the key is free", async || is_free(&locks, "k").await).await;
    }

    async fn a_dropped_body_releases(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let body = holder.mutex("k").run(async |_| std::future::pending::<()>().await);
        assert!(tokio::time::timeout(100 * MS, body).await.is_err());
        eventually("the key is free", async || is_free(&other, "k").await).await;
    }

    async fn a_dropped_acquire_leaves_nothing_behind(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        for locks in [&holder, &other] {
            let waiting = locks.mutex("k").wait(LONG).acquire();
            assert!(tokio::time::timeout(100 * MS, waiting).await.is_err());
        }
        guard.release().await.unwrap();
        eventually("the key is free", async || is_free(&other, "k").await).await;
    }

    async fn a_release_after_a_loss_fails_and_spares_the_next_holder(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let request = holder.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let late = request.acquire().await.unwrap();
        let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
        match late.release().await {
            Err(LockError::Lost { name, reason, .. }) => {
                assert_eq!((name.as_str(), reason), ("k", LostReason::Expired));
            }
            done => panic!("expected Lost, got {done:?}"),
        }
        assert!(next.is_held());
        let tried = answered(async || holder.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        next.release().await.unwrap();
    }

    async fn a_guard_dropped_after_a_loss_leaves_the_next_holder_alone(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let request = holder.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let late = request.acquire().await.unwrap();
        let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
        drop(late);
        // A background release of `late` has reached the store by the time this request is answered.
        is_free(&holder, "another").await;
        assert!(next.is_held() && !is_free(&holder, "k").await);
        next.release().await.unwrap();
    }

    async fn a_release_of_a_key_deleted_under_the_holder_is_a_loss(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        store.flush();
        match guard.release().await {
            Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LostReason::Refused),
            done => panic!("expected Lost, got {done:?}"),
        }
    }

    async fn after_a_normal_release_nobody_is_told_of_a_loss(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let (lost, lease) = (guard.lost(), guard.lease());
        guard.release().await.unwrap();
        assert!(!lost.is_lost() && !lease.is_held() && lease.remaining().is_zero());
        assert!(tokio::time::timeout(200 * MS, lost.wait()).await.is_err());
    }
}
