//! Tests of callers that began to acquire and are not polled any more. `select!` on `&mut acquire` with a slow arm does
//! that, and so does `buffer_unordered` with a slow consumer. They cost others a lease at most.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, TryAcquire};
use tests::{Store, answered, eventually, left_of};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(1);
/// Only a hang takes so long.
const LONG: Duration = Duration::from_secs(60);
/// A caller is passed that was silent for a call and 3 s since another caller looked. It also bounds each step of a
/// connection, so a busy machine needs it as long as this.
const CALL: Duration = Duration::from_secs(3);

type Acquire = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Polls the future for the time `after`, in which it has to wait, and then no more.
async fn park(
    acquire: impl Future<Output = Result<LockGuard, LockError>> + Send + 'static,
    after: Duration,
) -> Acquire {
    let mut acquire: Acquire = Box::pin(acquire);
    waits(&mut acquire, after).await;
    acquire
}

/// Polls the future for the time `long`, and asserts that it has to wait.
async fn waits(acquire: &mut Acquire, long: Duration) {
    let early = timeout(long, acquire).await;
    assert!(early.is_err(), "had to wait: {early:?}");
}

tests::suite! {
    also on a quorum:
    async fn a_lock_handed_to_a_parked_caller_is_free_after_a_lease(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(3 * LEASE);
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        let request = locks.mutex("k").lease(lease).wait(LONG);
        let mut heir = park(request.acquire(), Duration::ZERO).await;
        let handed_over = Instant::now();
        guard.release().await.unwrap();
        let guard = other.mutex("k").wait(LONG).acquire().await.unwrap();
        let taken = handed_over.elapsed();
        assert!(taken > lease / 2, "it was handed over: {taken:?}");
        // The lock was lost before the parked caller saw it. That caller asks again, and waits. A message is the grant for a
        // second after that. Such a hold would last for a second at first, and a busy machine may stop for longer.
        waits(&mut heir, 1_200 * MS).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
        let guard = heir.await.unwrap();
        assert!(guard.is_held());
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        // The caller has the lock now, so it is renewed.
        store.until_renewed(lease, async || left_of(&other, "k").await.min(guard.remaining())).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }

    async fn a_message_grant_to_a_parked_caller_ends_after_a_lease(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(3 * LEASE);
        let request = |manager: &LockManager| manager.mutex("k").lease(lease).wait(LONG);
        let mut guard = request(&locks).acquire().await.unwrap();
        // From the second change of hands on, both know that the other one waits, and the message is the grant.
        for manager in [&other, &locks, &other] {
            let next = park(request(manager).acquire(), 300 * MS).await;
            store.given_back(guard).await;
            guard = next.await.unwrap();
        }
        let mut heir = park(request(&locks).acquire(), 300 * MS).await;
        store.given_back(guard).await;
        // The caller is polled until it has the lock, or has a hold and does not know it yet.
        let mut had = None;
        eventually("it has a hold", async || {
            let polled = poll_fn(|cx| Poll::Ready(heir.as_mut().poll(cx))).await;
            let has = polled.is_ready() || !locks.snapshot().holds.is_empty();
            if let Poll::Ready(handle) = polled {
                had = Some(handle.unwrap());
            }
            has
        })
        .await;
        if let Some(guard) = had {
            store.given_back(guard).await;
            return;
        }
        let guard = other.mutex("k").wait(LONG).acquire().await.unwrap();
        waits(&mut heir, 300 * MS).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
        store.given_back(heir.await.unwrap()).await;
    }

    async fn a_caller_polled_after_its_wait_gets_no_lock_it_did_not_take(store: &mut Store) {
        let locks = store.manager().await;
        let lease = (store.lasting(LEASE) / 2).max(LEASE);
        let guard = locks.mutex("k").acquire().await.unwrap();
        let request = locks.mutex("k").lease(lease).wait(1_000 * MS);
        let heir = park(request.acquire(), Duration::ZERO).await;
        guard.release().await.unwrap();
        sleep(lease + LEASE).await;
        let late = heir.await;
        assert!(matches!(late, Err(LockError::Busy { .. })), "{late:?}");
        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }

    async fn a_caller_that_is_polled_late_gets_a_lock_that_lasts(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(3 * LEASE);
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        let request = locks.mutex("k").lease(lease).wait(LONG);
        let heir = park(request.acquire(), Duration::ZERO).await;
        guard.release().await.unwrap();
        // This is after the time at which the lock would have been renewed, and within its lease.
        sleep(lease / 2).await;
        let guard = heir.await.unwrap();
        store.until_renewed(lease, async || left_of(&other, "k").await.min(guard.remaining())).await;
        assert!(guard.is_held(), "renewed from then on");
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        guard.release().await.unwrap();
    }

    async fn the_local_queue_goes_on_when_its_front_takes_no_lock(store: &mut Store) {
        let locks = store.manager().await;
        let lease = store.lasting(LEASE);
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        let request = locks.mutex("k").lease(lease).wait(LONG);
        let heir = park(request.clone().acquire(), Duration::ZERO).await;
        let next = park(request.acquire(), Duration::ZERO).await;
        guard.release().await.unwrap();
        let next = timeout(LONG, next).await.expect("the next one is served").unwrap();
        next.release().await.unwrap();
        heir.await.unwrap().release().await.unwrap();
    }

    async fn a_parked_callers_part_of_a_set_is_free_after_a_lease(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(3 * LEASE);
        let second = other.mutex("2").lease(lease).acquire().await.unwrap();
        let set = ["1", "2"].map(|name| locks.mutex(name).lease(lease));
        let mut set = park(locks.multi(set).wait(LONG).acquire(), 500 * MS).await;
        while left_of(&other, "1").await < lease / 2 {
            waits(&mut set, 100 * MS).await;
        }
        let first = other.mutex("1").wait(LONG).acquire().await.unwrap();
        second.release().await.unwrap();
        waits(&mut set, 300 * MS).await;
        assert!(first.is_held());
        first.release().await.unwrap();
        let set = set.await.unwrap();
        let left = async || left_of(&other, "1").await.min(left_of(&other, "2").await).min(set.remaining());
        store.until_renewed(lease, left).await;
        assert!(set.is_held(), "a set that its caller has is renewed");
        for name in ["1", "2"] {
            let tried = answered(async || other.mutex(name).try_acquire().await).await;
            assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        }
        set.release().await.unwrap();
    }

    async fn a_part_of_a_set_is_kept_while_its_caller_waits_for_the_rest(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(LEASE);
        let second = other.mutex("2").acquire().await.unwrap();
        let set = ["1", "2"].map(|name| locks.mutex(name).lease(lease));
        let mut set = park(locks.multi(set).wait(LONG).acquire(), LEASE).await;
        while left_of(&other, "1").await.is_zero() {
            waits(&mut set, 50 * MS).await;
        }
        let until = Instant::now() + (lease * 5 / 4).max(4 * LEASE);
        while Instant::now() < until {
            waits(&mut set, 50 * MS).await;
            let tried = answered(async || other.mutex("1").try_acquire().await).await;
            assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        }
        second.release().await.unwrap();
        set.await.unwrap().release().await.unwrap();
    }

    async fn callers_parked_during_a_request_block_no_other_requests(store: &mut Store) {
        let locks = store.connect(tests::builder().call_timeout(CALL)).await;
        let mut parked = Vec::new();
        // There are more of them than a connection takes at once.
        for number in 0..1_100 {
            let request = locks.mutex(format!("parked:{number}")).lease(LEASE);
            let mut acquire = Box::pin(request.acquire());
            // Poll it once: it has then what it needs for its request, and keeps it.
            poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_ready())).await;
            parked.push(acquire);
            // A task may not begin that many requests without a pause.
            tokio::task::yield_now().await;
        }
        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
        // On a busy machine, the requests of the others may be under way for longer than a call may last.
        let released = guard.release().await;
        assert!(matches!(released, Ok(()) | Err(LockError::Unavailable { .. })), "{released:?}");
        drop(parked);
    }

    async fn local_callers_pass_a_parked_one_that_asks_for_all_of_them(store: &mut Store) {
        let builder = tests::builder().call_timeout(CALL);
        let (locks, other) = (store.connect(builder).await, store.manager().await);
        let held = other.mutex("k").acquire().await.unwrap();
        let request = locks.mutex("k").wait(LONG);
        let front = park(request.clone().acquire(), 300 * MS).await;
        let next = park(request.acquire(), Duration::ZERO).await;
        held.release().await.unwrap();
        let next = timeout(LONG, next).await.expect("it is passed").unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
        front.await.unwrap().release().await.unwrap();
    }

    async fn local_callers_pass_a_release_that_nobody_polls(store: &mut Store) {
        let builder = tests::builder().call_timeout(CALL);
        let locks = store.connect(builder).await;
        let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
        let release = guard.release();
        let guard = timeout(LONG, locks.mutex("k").wait(LONG).acquire()).await;
        let guard = guard.expect("it is passed").unwrap();
        drop(release);
        sleep(LEASE).await;
        assert!(guard.is_held(), "what was released late is another hold");
        guard.release().await.unwrap();
    }
}
