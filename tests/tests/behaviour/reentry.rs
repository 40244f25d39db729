//! A nested request re-enters the lock that an ancestor in its own call chain holds, and no other.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LostReason, TryAcquire};
use tests::{History, Store, answered, eventually, had_at_once, left_of};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn assert_busy(result: Result<LockGuard, LockError>) {
    assert!(
        matches!(result, Err(LockError::Busy { .. })),
        "expected Busy, got {result:?}"
    );
}

async fn is_free(locks: &LockManager, key: &str) -> bool {
    let tried = answered(async || locks.mutex(key).try_acquire().await).await;
    match tried.unwrap() {
        TryAcquire::Acquired(guard) => guard.release().await.is_ok(),
        TryAcquire::Busy { .. } => false,
    }
}

async fn assert_free(locks: &LockManager, key: &str) {
    let guard = had_at_once(async || locks.mutex(key).try_acquire().await).await;
    guard.release().await.unwrap();
}

/// Takes `key`, keeps it over some polls, and records the hold.
async fn work(locks: &LockManager, key: &str, history: &History) -> Option<u64> {
    let guard = locks.mutex(key).wait(LONG).acquire().await.unwrap();
    let token = guard.fencing_token().map(|token| token.get());
    // Nested holds share one token, which the checker must not take for a repeated one.
    let hold = history.begin(key, "sibling", None);
    for _ in 0..5 {
        sleep(MS).await;
    }
    hold.end();
    guard.release().await.unwrap();
    token
}

tests::suite! {
    also on a quorum:
    async fn a_request_without_reentry_contends_with_its_own_ancestor(store: &mut Store) {
        let locks = store.manager().await;
        let nested = locks
            .mutex("k")
            .run(async |_| {
                let request = locks.mutex("k").reentrant(false);
                assert!(matches!(request.clone().try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
                request.wait(100 * MS).acquire().await
            })
            .await
            .unwrap();
        assert_busy(nested);
        let guard = locks.mutex("k").reentrant(false).acquire().await.unwrap();
        guard.release().await.unwrap();
    }

    async fn a_nested_request_shares_its_ancestors_hold(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let body = locks.mutex("k").run(async |outer| {
            for _ in 0..3 {
                let inner = locks.mutex("k").wait(Duration::ZERO).acquire().await.unwrap();
                assert_eq!(inner.fencing_token(), outer.fencing_token());
                inner.release().await.unwrap();
                assert!(outer.is_held());
                assert!(!is_free(&other, "k").await, "an inner release frees nothing");
            }
            assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Acquired(_)));
        });
        body.await.unwrap();
        assert_free(&other, "k").await;
    }

    async fn nesting_goes_any_depth_and_through_other_locks(store: &mut Store) {
        let locks = store.manager().await;
        let outcome = locks.mutex("a").run(async |outer| {
            locks.mutex("b").run(async |_| {
                locks.mutex("a").run(async |inner| {
                    assert_eq!(inner.fencing_token(), outer.fencing_token());
                    locks.mutex("b").run(async |_| locks.mutex("a").run(async |_| 5).await).await
                }).await
            }).await
        });
        assert_eq!(outcome.await.unwrap().unwrap().unwrap().unwrap().unwrap(), 5);
        assert_free(&locks, "a").await;
        assert_free(&locks, "b").await;
    }

    async fn a_guard_by_hand_nests_only_what_runs_in_its_scope(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert_busy(locks.mutex("k").wait(50 * MS).acquire().await);
        assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        let inner = guard.scope(async { locks.mutex("k").wait(50 * MS).acquire().await }).await;
        inner.unwrap().release().await.unwrap();
        guard.release().await.unwrap();
    }

    async fn another_manager_is_a_stranger_even_inside_a_body(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        locks.mutex("k").run(async |_| {
            let request = other.mutex("k").wait(1_000 * MS);
            assert_busy(answered(async || request.clone().acquire().await).await);
        }).await.unwrap();
    }

    async fn a_spawned_task_inherits_no_hold_but_a_scope_passes_one_on(store: &mut Store) {
        let locks = store.manager().await;
        locks.mutex("k").run(async |outer| {
            let request = locks.mutex("k").wait(50 * MS);
            assert_busy(tokio::spawn(async move { request.acquire().await }).await.unwrap());
            let request = locks.mutex("k").wait(50 * MS);
            let scoped = outer.scope(async move { request.acquire().await });
            let inner = tokio::spawn(scoped).await.unwrap().unwrap();
            assert_eq!(inner.fencing_token(), outer.fencing_token());
            inner.release().await.unwrap();
        }).await.unwrap();
    }

    async fn siblings_under_the_same_hold_take_turns(store: &mut Store) {
        let locks = store.manager().await;
        let history = History::new();
        let body = locks.mutex("k").run(async |outer| {
            let token = outer.fencing_token().map(|token| token.get());
            let turns = tokio::join!(
                work(&locks, "k", &history),
                work(&locks, "k", &history),
                work(&locks, "k", &history),
            );
            assert_eq!(turns, (token, token, token));
        });
        body.await.unwrap();
        assert_eq!(history.len(), 3);
        history.assert_exclusive();
        assert_free(&locks, "k").await;
    }

    async fn a_sibling_waits_no_longer_than_its_own_wait(store: &mut Store) {
        let locks = store.manager().await;
        locks.mutex("k").run(async |_| {
            let first = locks.mutex("k").acquire().await.unwrap();
            let started = Instant::now();
            assert_busy(locks.mutex("k").wait(200 * MS).acquire().await);
            assert!(started.elapsed() >= 200 * MS);
            assert!(matches!(locks.mutex("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
            first.release().await.unwrap();
            locks.mutex("k").wait(50 * MS).acquire().await.unwrap().release().await.unwrap();
        }).await.unwrap();
    }

    async fn siblings_under_another_lock_contend_like_strangers(store: &mut Store) {
        let locks = store.manager().await;
        let history = History::new();
        let body = locks.mutex("outer").run(async |_| {
            let tokens = tokio::join!(
                work(&locks, "inner", &history),
                work(&locks, "inner", &history),
                work(&locks, "inner", &history),
            );
            let differ = tokens.0 != tokens.1 && tokens.1 != tokens.2 && tokens.0 != tokens.2;
            assert!(differ || store.is_quorum(), "{tokens:?}");
        });
        body.await.unwrap();
        history.assert_exclusive();
    }

    async fn an_inner_hold_that_outlives_the_outer_keeps_the_lock(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let outer = locks.mutex("k").run(async |_| locks.mutex("k").acquire().await);
        let inner = outer.await.unwrap().unwrap();
        assert!(inner.is_held());
        assert!(!is_free(&other, "k").await);
        inner.release().await.unwrap();
        assert_free(&other, "k").await;
    }

    async fn an_inner_hold_that_outlives_the_outer_is_still_renewed(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(3_000 * MS);
        let request = locks.mutex("k").lease(lease);
        let outer = request.run(async |_| {
            locks.mutex("k").lease(lease).acquire().await
        });
        let inner = outer.await.unwrap().unwrap();
        store.until_renewed(lease, async || left_of(&other, "k").await.min(inner.remaining())).await;
        assert!(inner.is_held() && !is_free(&other, "k").await);
        inner.release().await.unwrap();
    }

    async fn a_request_under_a_lost_ancestor_is_lost_and_acquires_nothing(store: &mut Store) {
        let locks = store.manager().await;
        let request = locks.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let guard = request.acquire().await.unwrap();
        guard.lost().wait().await;
        let nested = guard.scope(async {
            assert!(matches!(locks.mutex("k").try_acquire().await, Err(LockError::Lost { .. })));
            locks.mutex("k").wait(LONG).acquire().await
        });
        match nested.await {
            Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LostReason::Expired),
            other => panic!("expected Lost, got {other:?}"),
        }
        drop(guard);
        eventually("the key is free", async || is_free(&locks, "k").await).await;
    }

    async fn a_loss_reaches_every_sharer(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let outer = locks.mutex("k").acquire().await.unwrap();
        let inner = outer.scope(async { locks.mutex("k").acquire().await }).await.unwrap();
        assert!(other.force_release("k").await.unwrap());
        let (first, second) = tokio::join!(outer.lost().into_future(), inner.lost().into_future());
        assert_eq!((first, second), (LostReason::ForceReleased, LostReason::ForceReleased));
        assert!(!outer.is_held() && !inner.is_held());
        assert!(inner.release().await.is_err() && outer.release().await.is_err());
    }

    async fn a_nested_request_may_lengthen_the_lease(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lease() / 2;
        let request = locks.mutex("k").lease(lease).auto_renew(false);
        let outer = request.acquire().await.unwrap();
        let inner = outer.scope(async {
            locks.mutex("k").lease(store.lease()).auto_renew(false).acquire().await
        }).await.unwrap();
        eventually("the store knows the longer one", async || {
            left_of(&other, "k").await.min(outer.remaining()) > lease
        }).await;
        assert!(outer.is_held() && inner.is_held() && !is_free(&other, "k").await);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }

    async fn a_nested_request_never_shortens_the_lease(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let outer = locks.mutex("k").acquire().await.unwrap();
        let inner = outer.scope(async {
            locks.mutex("k").lease(200 * MS).auto_renew(false).acquire().await
        }).await.unwrap();
        assert!(outer.remaining() > store.lease() / 2, "{:?}", outer.remaining());
        sleep(600 * MS).await;
        assert!(outer.is_held() && inner.is_held() && !is_free(&other, "k").await);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }

    async fn the_outers_max_hold_wins(store: &mut Store) {
        let locks = store.manager().await;
        let max_hold = store.lasting(2_000 * MS);
        let outer = locks.mutex("k").max_hold(max_hold).acquire().await.unwrap();
        let inner = outer.scope(async {
            locks.mutex("k").max_hold(60_000 * MS).acquire().await
        }).await.unwrap();
        assert_eq!(inner.lost().wait().await, LostReason::MaxHold);
        assert!(inner.release().await.is_err() && outer.release().await.is_err());
        eventually("the key is free", async || is_free(&locks, "k").await).await;
    }

    async fn an_inner_max_hold_limits_nothing(store: &mut Store) {
        let locks = store.manager().await;
        let outer = locks.mutex("k").acquire().await.unwrap();
        let inner = outer.scope(async {
            locks.mutex("k").max_hold(50 * MS).acquire().await
        }).await.unwrap();
        sleep(100 * MS).await;
        assert!(inner.is_held());
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }
}
