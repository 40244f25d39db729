//! A hold lasts as long as its lease, and longer only while it is renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LostReason, TryAcquire};
use tests::{Store, answered, eventually, had_at_once, left_of};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn reason<T: std::fmt::Debug>(result: Result<T, LockError>) -> (LostReason, bool) {
    match result {
        Err(LockError::Lost {
            reason, completed, ..
        }) => (reason, completed),
        other => panic!("expected Lost, got {other:?}"),
    }
}

/// A value that records that the future that owns it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

tests::suite! {
    also on a quorum:
    async fn a_fixed_lease_is_not_renewed(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(2_000 * MS);
        let started = Instant::now();
        let request = holder.mutex("k").lease(lease).auto_renew(false);
        let guard = request.acquire().await.unwrap();
        assert!(guard.is_held() && guard.remaining() <= lease * 99 / 100);
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        guard.lost().wait().await;
        // The holder stops first: its deadline is the lease less a margin, counted from the send.
        assert!(started.elapsed() >= lease * 97 / 100, "{:?}", started.elapsed());
        assert!(!guard.is_held() && guard.remaining().is_zero());
        eventually("the store's lease is over, too", async || {
            match answered(async || other.mutex("k").try_acquire().await).await.unwrap() {
                TryAcquire::Acquired(next) => next.release().await.is_ok(),
                TryAcquire::Busy { .. } => false,
            }
        }).await;
        assert_eq!(reason(guard.release().await).0, LostReason::Expired);
    }

    async fn a_hold_is_renewed_past_its_lease(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(3_000 * MS);
        let guard = holder.mutex("k").lease(lease).acquire().await.unwrap();
        let started = Instant::now();
        while started.elapsed() < (lease * 5 / 4).max(7_000 * MS) {
            assert!(guard.is_held(), "after {:?}", started.elapsed());
            assert!(guard.remaining() > 300 * MS, "{:?}", guard.remaining());
            let tried = answered(async || other.mutex("k").try_acquire().await).await.unwrap();
            let left = guard.remaining();
            assert!(matches!(tried, TryAcquire::Busy { .. }), "with {left:?} left: {tried:?}");
            sleep(50 * MS).await;
        }
        guard.release().await.unwrap();
        let next = had_at_once(async || other.mutex("k").try_acquire().await).await;
        next.release().await.unwrap();
    }

    async fn a_body_runs_past_the_lease_while_it_is_renewed(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lasting = store.renewing(3_000 * MS);
        let body = locks.mutex("k").lease(lasting).run(async |lease| {
            store.until_renewed(lasting, async || left_of(&other, "k").await.min(lease.remaining())).await;
            lease.is_held()
        });
        assert!(body.await.unwrap());
    }

    async fn the_body_of_a_fixed_lease_is_dropped_when_the_lease_is_over(store: &mut Store) {
        let locks = store.manager().await;
        let (dropped, past) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let request = locks.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let result = request.run(async |_| {
            let _notes = Dropped(Arc::clone(&dropped));
            sleep(60_000 * MS).await;
            past.store(true, Ordering::SeqCst);
        });
        assert_eq!(reason(result.await), (LostReason::Expired, false));
        assert!(dropped.load(Ordering::SeqCst) && !past.load(Ordering::SeqCst));
    }

    async fn a_hold_ends_at_its_max_hold_and_the_key_is_free(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let started = Instant::now();
        let request = holder.mutex("k").lease(store.lease()).max_hold(1_500 * MS);
        let result = request.run(async |_| sleep(60_000 * MS).await);
        assert_eq!(reason(result.await), (LostReason::MaxHold, false));
        let elapsed = started.elapsed();
        assert!(elapsed >= 1_400 * MS && elapsed < store.within(4_000 * MS), "{elapsed:?}");
        // The key was released, not left until its lease ends.
        let next = other.mutex("k").wait(store.lease() / 2).acquire().await.unwrap();
        next.release().await.unwrap();
    }

    async fn a_guard_by_hand_is_told_of_its_max_hold(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").max_hold(300 * MS).acquire().await.unwrap();
        assert!(guard.remaining() <= 300 * MS);
        guard.lost().wait().await;
        assert!(!guard.is_held());
        assert_eq!(reason(guard.release().await).0, LostReason::MaxHold);
    }

    async fn a_renewal_by_hand_lengthens_a_fixed_lease(store: &mut Store) {
        let (holder, other) = (store.manager().await, store.manager().await);
        let lease = store.lease() / 2;
        let request = holder.mutex("k").lease(lease).auto_renew(false);
        let guard = request.acquire().await.unwrap();
        guard.renew(store.lease()).await.unwrap();
        assert!(guard.remaining() > lease, "{:?}", guard.remaining());
        assert!(left_of(&other, "k").await > lease);
        guard.release().await.unwrap();
    }

    async fn a_renewal_by_hand_never_shortens(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").lease(store.lease()).acquire().await.unwrap();
        guard.renew(1_000 * MS).await.unwrap();
        assert!(guard.remaining() > store.lease() / 2, "{:?}", guard.remaining());
        assert!(left_of(&locks, "k").await > store.lease() / 2);
        sleep(1_500 * MS).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }

    async fn a_lost_hold_cannot_be_renewed(store: &mut Store) {
        let locks = store.manager().await;
        let request = locks.mutex("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let guard = request.acquire().await.unwrap();
        sleep(1_200 * MS).await;
        reason(guard.renew(1_000 * MS).await);
        reason(guard.release().await);
    }

    async fn a_body_completed_before_a_loss_is_seen_keeps_its_value(store: &mut Store) {
        let locks = store.manager().await;
        let request = locks.mutex("k").lease(store.lease());
        let value = request.run(async |lease| {
            assert!(lease.is_held() && !lease.lost().is_lost());
            assert!(lease.remaining() > store.lease() / 2);
            assert_eq!(lease.name(), "k");
            41 + 1
        });
        assert_eq!(value.await.unwrap(), 42);
    }

    async fn leases_out_of_bounds_are_refused_before_anything_is_sent(store: &mut Store) {
        let locks = store.manager().await;
        let longest = store.longest_lease();
        for (lease, renewed) in
            [(Duration::ZERO, false), (49 * MS, false), (longest + MS, true), (999 * MS, true)]
        {
            let request = locks.mutex("k").lease(lease).auto_renew(renewed);
            match request.acquire().await {
                Err(error @ LockError::InvalidLease { .. }) => assert!(!error.is_retryable()),
                other => panic!("{lease:?}: expected InvalidLease, got {other:?}"),
            }
        }
        for (lease, renewed) in [(50 * MS, false), (longest, true), (1_000 * MS, true)] {
            let request = locks.mutex("k").lease(lease).auto_renew(renewed);
            match request.acquire().await {
                Ok(guard) => drop(guard.release().await),
                Err(error @ LockError::InvalidLease { .. }) => panic!("{lease:?}: {error:?}"),
                // The answers of a busy machine come too late for such a lease.
                Err(error) => assert_eq!(lease, 50 * MS, "{error:?}"),
            }
        }
    }
}
