//! Tests of what an operator sees and does: `inspect`, `force_release` and `shutdown`.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::stops::{STOP, in_one_of_a_few_rounds, shut_down};
use tests::{Store, answered, eventually, eventually_within};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Takes the lock that a shutdown has given back: at once on a paused clock, and long before its lease is over on a busy
/// machine, where a body may not be run in the 250 ms that a shutdown waits for it.
///
/// Returns false if it was not given back: a shutdown waits for releases for two seconds at most, and what a machine that
/// stands still keeps back for longer is left to its lease. It is deleted then, for the next round.
async fn given_back(store: &Store, other: &LockManager) -> bool {
    let request = other.mutex("k").wait(store.within(Duration::ZERO));
    match request.acquire().await {
        Ok(next) => store.given_back(next).await,
        Err(LockError::Busy { .. }) => {
            other.force_release("k").await.unwrap();
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    true
}

/// Runs a round that ends with a shutdown, which gives the lock back. The round returns whether the shutdown was in time: one
/// that was not says nothing, whatever held it up.
async fn is_given_back(store: &Store, other: &LockManager, mut round: impl AsyncFnMut() -> bool) {
    in_one_of_a_few_rounds(Duration::ZERO, "it is given back", async || {
        let in_time = round().await;
        let is_given_back = given_back(store, other).await;
        assert!(is_given_back || !in_time, "it is still taken");
        in_time
    })
    .await;
}

/// Does the same forty times.
async fn is_always_given_back(
    store: &Store,
    other: &LockManager,
    mut round: impl AsyncFnMut() -> bool,
) {
    for _ in 0..40 {
        is_given_back(store, other, &mut round).await;
    }
}

tests::suite! {
    also on a quorum:
    async fn a_free_lock_is_seen_as_free(store: &mut Store) {
        let locks = store.manager().await;
        let info = locks.inspect("k").await.unwrap();
        assert!(!info.held);
    }

    async fn a_held_lock_is_seen_with_its_lease(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        for locks in [&holder, &other] {
            let info = locks.inspect("k").await.unwrap();
            assert!(info.held, "{info:?}");
            let left = info.ttl.unwrap();
            assert!(left > store.lease() / 2 && left <= store.lease(), "{left:?}");
            assert_eq!(info.count, 1);
        }
        guard.release().await.unwrap();
        assert!(!other.inspect("k").await.unwrap().held);
    }

    async fn a_forced_release_is_told_to_the_holder_at_once(store: &mut Store) {
        let (holder, operator) = (store.manager().await, store.manager().await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        let forced = Instant::now();
        assert!(operator.force_release("k").await.unwrap());
        assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
        // A push told the holder, not the next renewal: that would be refused.
        assert!(forced.elapsed() < store.within(1_000 * MS), "{:?}", forced.elapsed());
        assert!(!guard.is_held());
        match guard.release().await {
            Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LostReason::ForceReleased),
            other => panic!("expected Lost, got {other:?}"),
        }
    }

    async fn a_forced_release_by_the_holders_own_manager_is_told_too(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert!(locks.force_release("k").await.unwrap());
        assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
        drop(guard);
    }

    async fn a_forced_release_drops_the_body(store: &mut Store) {
        let (holder, operator) = (store.manager().await, store.manager().await);
        let request = holder.mutex("k");
        let (tell, started) = tokio::sync::oneshot::channel();
        let body = tokio::spawn(request.run(|_| async move {
            tell.send(()).unwrap();
            sleep(LONG * 60).await;
        }));
        started.await.unwrap();
        assert!(operator.force_release("k").await.unwrap());
        match body.await.unwrap() {
            Err(LockError::Lost { reason, completed, .. }) => {
                assert_eq!((reason, completed), (LostReason::ForceReleased, false));
            }
            other => panic!("expected Lost, got {other:?}"),
        }
    }

    async fn a_forced_release_wakes_a_waiter_and_spares_the_next_holder(store: &mut Store) {
        let (holder, waiter) = (store.manager().await, store.told().await);
        let operator = store.manager().await;
        let old = holder.mutex("k").acquire().await.unwrap();
        let request = waiter.mutex("k").wait(LONG);
        let pending = tokio::spawn(async move { request.acquire().await });
        sleep(300 * MS).await;
        let forced = Instant::now();
        assert!(operator.force_release("k").await.unwrap());
        let next = pending.await.unwrap().unwrap();
        assert!(forced.elapsed() < store.within(700 * MS), "{:?}", forced.elapsed());
        old.lost().wait().await;
        drop(old);
        sleep(100 * MS).await;
        assert!(next.is_held() && operator.inspect("k").await.unwrap().held);
        next.release().await.unwrap();
    }

    async fn a_forced_release_that_overtakes_the_grant_is_not_missed(store: &mut Store) {
        let (holder, operator) = (store.manager().await, store.manager().await);
        let told = store.within(2_000 * MS);
        for _ in 0..50 {
            let pending = tokio::spawn(holder.mutex("k").wait(LONG).acquire());
            // In a quorum, each call may take away the only vote that there is, so that none of them finds a majority.
            while !operator.force_release("k").await.unwrap() && !pending.is_finished() {
                tokio::task::yield_now().await;
            }
            let guard = pending.await.unwrap().unwrap();
            // Either the holder was told, or the forced release was so early that the holder acquired a second time.
            eventually_within(told, "a guard that claims to hold does hold", async || {
                !guard.is_held() || operator.inspect("k").await.unwrap().held
            }).await;
            if !guard.is_held() {
                // A push told the holder, not the next renewal: that would be refused.
                assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
            }
            drop(guard);
            eventually("the key is free", async || !operator.inspect("k").await.unwrap().held).await;
        }
    }

    async fn forcing_a_free_lock_does_nothing(store: &mut Store) {
        let locks = store.manager().await;
        assert!(!locks.force_release("k").await.unwrap());
    }

    async fn a_deleted_lock_is_noticed_at_the_next_check(store: &mut Store) {
        let locks = store.manager().await;
        let lease = store.renewing(3_000 * MS);
        let renewed = locks.mutex("renewed").lease(lease).acquire().await.unwrap();
        let request = locks.mutex("fixed").lease(lease).auto_renew(false);
        let fixed = request.acquire().await.unwrap();
        let started = Instant::now();
        store.flush();
        assert_eq!(renewed.lost().wait().await, LostReason::Refused);
        assert_eq!(fixed.lost().wait().await, LostReason::Refused);
        assert!(started.elapsed() < lease, "{:?}", started.elapsed());
        drop(renewed);
        drop(fixed);
    }

    async fn a_shutdown_waits_for_holds_and_refuses_newcomers_and_waiters(store: &mut Store) {
        let other = store.manager().await;
        is_given_back(store, &other, async || {
            let locks = store.connect(tests::builder().shutdown_grace(LONG)).await;
            let guard = locks.mutex("k").acquire().await.unwrap();
            let request = locks.mutex("k").wait(LONG);
            let waiter = tokio::spawn(async move { request.acquire().await });
            sleep(50 * MS).await;
            let closing = tokio::spawn({
                let locks = locks.clone();
                async move { shut_down(&locks).await }
            });
            assert!(matches!(waiter.await.unwrap(), Err(LockError::ShuttingDown { .. })));
            let refused = locks.mutex("other").acquire().await;
            assert!(matches!(refused, Err(LockError::ShuttingDown { .. })), "{refused:?}");
            assert!(guard.is_held() && !closing.is_finished());
            let released = guard.release().await;
            let in_time = closing.await.unwrap();
            assert!(released.is_ok() || !in_time, "{released:?}");
            in_time
        }).await;
    }

    async fn a_shutdown_does_not_cut_off_the_release_that_it_waited_for(store: &mut Store) {
        let other = store.manager().await;
        is_always_given_back(store, &other, async || {
            let locks = store.manager().await;
            let guard = locks.mutex("k").acquire().await.unwrap();
            let closing = tokio::spawn(async move { shut_down(&locks).await });
            tokio::task::yield_now().await;
            let released = guard.release().await;
            let in_time = closing.await.unwrap();
            assert!(released.is_ok() || !in_time, "{released:?}");
            in_time
        }).await;
    }

    async fn a_lock_granted_after_the_shutdown_began_is_given_back(store: &mut Store) {
        let other = store.manager().await;
        is_always_given_back(store, &other, async || {
            let locks = store.connect(tests::builder().shutdown_grace(50 * MS)).await;
            let pending = tokio::spawn(locks.mutex("k").run(async |_| sleep(LONG * 60).await));
            // The store may have granted the lock before the request knows.
            while !other.inspect("k").await.unwrap().held {
                tokio::task::yield_now().await;
            }
            let in_time = shut_down(&locks).await;
            assert!(pending.await.unwrap().is_err());
            in_time
        }).await;
    }

    async fn a_request_dropped_during_a_shutdown_leaves_nothing_behind(store: &mut Store) {
        let other = store.manager().await;
        is_always_given_back(store, &other, async || {
            let locks = store.manager().await;
            let pending = tokio::spawn(locks.mutex("k").run(async |_| sleep(LONG * 60).await));
            // The store may have granted the lock before the request knows.
            while !other.inspect("k").await.unwrap().held {
                tokio::task::yield_now().await;
            }
            pending.abort();
            shut_down(&locks).await
        }).await;
    }

    async fn after_the_grace_a_shutdown_ends_bodies_and_frees_their_keys(store: &mut Store) {
        let other = store.manager().await;
        in_one_of_a_few_rounds(STOP, "its key is freed", async || {
            let locks = store.connect(tests::builder().shutdown_grace(200 * MS)).await;
            let (tell, running) = tokio::sync::oneshot::channel();
            let body = tokio::spawn(locks.mutex("k").run(|_| async move {
                tell.send(()).unwrap();
                sleep(LONG * 60).await;
            }));
            running.await.unwrap();
            let started = Instant::now();
            let in_time = shut_down(&locks).await;
            assert!(started.elapsed() < store.within(3_000 * MS), "{:?}", started.elapsed());
            match body.await.unwrap() {
                Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LostReason::Shutdown),
                other => panic!("expected Lost, got {other:?}"),
            }
            let is_given_back = given_back(store, &other).await;
            assert!(is_given_back || !in_time, "it is still taken");
            is_given_back
        }).await;
    }

    async fn a_shutdown_does_not_wait_for_a_guard_beyond_its_grace(store: &mut Store) {
        let other = store.manager().await;
        let locks = store.connect(tests::builder().shutdown_grace(100 * MS)).await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        let started = Instant::now();
        locks.shutdown().await;
        assert!(started.elapsed() >= 100 * MS && started.elapsed() < store.within(1_500 * MS), "{:?}", started.elapsed());
        assert_eq!(guard.lost().wait().await, LostReason::Shutdown);
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        // A guard that is dropped late still gives its key back, long before its lease is over.
        let started = Instant::now();
        drop(guard);
        store.given_back(other.mutex("k").wait(LONG).acquire().await.unwrap()).await;
        assert!(started.elapsed() < store.lease() / 2, "{:?}", started.elapsed());
        // The shutdown is complete, so a second one does not wait.
        let started = Instant::now();
        locks.shutdown().await;
        assert!(started.elapsed() < store.within(100 * MS), "{:?}", started.elapsed());
    }

    async fn a_shutdown_waits_for_guards_that_owners_drop_at_the_loss(store: &mut Store) {
        let other = store.manager().await;
        for _ in 0..100 {
            let locks = store.connect(tests::builder().shutdown_grace(100 * MS)).await;
            let guard = locks.mutex("k").acquire().await.unwrap();
            let owner = tokio::spawn(async move {
                let reason = guard.lost().wait().await;
                drop(guard);
                reason
            });
            let started = Instant::now();
            locks.shutdown().await;
            let waited = started.elapsed();
            let next = other.mutex("k").try_acquire().await;
            assert_eq!(owner.await.unwrap(), LostReason::Shutdown);
            match next {
                Ok(TryAcquire::Acquired(next)) => return next.release().await.unwrap(),
                // On a busy machine, the owner may not run in the 250 ms that the shutdown gives it after the grace.
                Ok(TryAcquire::Busy { .. }) => assert!(waited >= 350 * MS, "it did not wait for the owner: {waited:?}"),
                // The answer to a try may come too late, which says nothing.
                Err(error) => assert!(matches!(error, LockError::Unavailable { .. }), "{error}"),
            }
        }
        panic!("no owner was in time");
    }
}
