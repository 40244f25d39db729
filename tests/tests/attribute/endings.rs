//! Tests of how a call of an annotated function ends: by `?` or `return`, by the loss of its lock, at its limit, by a
//! drop, and by a panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{Lease, LockError, LockManager, LostReason, distributed_lock};
use tokio::sync::Notify;

use crate::witness::{HELD, NOT_DROPPED, Witness, is_held};

#[derive(Debug)]
enum ServiceError {
    Lock(LockError),
    Parse,
}

impl From<LockError> for ServiceError {
    fn from(error: LockError) -> ServiceError {
        ServiceError::Lock(error)
    }
}

impl From<std::num::ParseIntError> for ServiceError {
    fn from(_: std::num::ParseIntError) -> ServiceError {
        ServiceError::Parse
    }
}

#[distributed_lock(key = "parse", manager = locks)]
async fn parse(locks: &LockManager, text: &str) -> Result<u64, ServiceError> {
    if text == "early" {
        return Ok(1);
    }
    let number = text.parse()?;
    Ok(number)
}

#[tokio::test(start_paused = true)]
async fn question_mark_and_return_end_the_body_and_free_the_lock() {
    let locks = LockManager::in_memory();
    assert_eq!(parse(&locks, "early").await.unwrap(), 1);
    assert!(matches!(parse(&locks, "x").await, Err(ServiceError::Parse)));
    assert!(!is_held(&locks, "parse").await);
}

#[distributed_lock(key = "lost", manager = locks)]
async fn endless(
    locks: &LockManager,
    started: &Notify,
    _witness: Witness,
) -> Result<(), ServiceError> {
    started.notify_one();
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_loss_drops_the_body_with_its_arguments_and_is_returned() {
    let locks = LockManager::in_memory();
    let started = Notify::new();
    let (witness, seen) = Witness::new(&locks, "lost");
    let (outcome, ()) = tokio::join!(endless(&locks, &started, witness), async {
        started.notified().await;
        assert!(locks.force_release("lost").await.unwrap());
    });
    let Err(ServiceError::Lock(LockError::Lost {
        reason, completed, ..
    })) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!((reason, completed), (LostReason::ForceReleased, false));
    assert_ne!(seen.load(Ordering::SeqCst), NOT_DROPPED);
}

#[distributed_lock(key = "limit", manager = locks, max_hold = limit)]
async fn limited(locks: &LockManager, limit: Duration) -> Result<(), LockError> {
    std::future::pending().await
}

#[distributed_lock(key = "fixed", manager = locks, lease = "500ms", auto_renew = false)]
async fn fixed(locks: &LockManager) -> Result<(), LockError> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn max_hold_and_a_fixed_lease_end_the_body() {
    let locks = LockManager::in_memory();
    let error = limited(&locks, Duration::from_secs(90)).await.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::Lost {
                reason: LostReason::MaxHold,
                ..
            }
        ),
        "{error}"
    );
    let error = fixed(&locks).await.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::Lost {
                reason: LostReason::Expired,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_releases() {
    let locks = LockManager::in_memory();
    let started = Arc::new(Notify::new());
    let (witness, seen) = Witness::new(&locks, "lost");
    let task = tokio::spawn({
        let (locks, started) = (locks.clone(), started.clone());
        async move { endless(&locks, &started, witness).await }
    });
    started.notified().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(seen.load(Ordering::SeqCst), HELD);
    locks
        .mutex("lost")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A value that records, when it is dropped, whether its lease is still held.
struct HeldAtDrop(Lease, Arc<AtomicBool>);

impl Drop for HeldAtDrop {
    fn drop(&mut self) {
        self.1.store(self.0.is_held(), Ordering::SeqCst);
    }
}

#[distributed_lock(key = "dropped", manager = locks, guard = lease)]
async fn never_ends(locks: &LockManager, seen: Arc<AtomicBool>) -> Result<(), LockError> {
    let _seen = HeldAtDrop(lease.clone(), seen);
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_drops_the_body_before_its_hold_ends() {
    let locks = LockManager::in_memory();
    let held = Arc::new(AtomicBool::new(false));
    let call = never_ends(&locks, held.clone());
    assert!(
        tokio::time::timeout(Duration::from_secs(1), call)
            .await
            .is_err()
    );
    assert!(held.load(Ordering::SeqCst));
}

#[distributed_lock(key = "panic", manager = locks)]
async fn panics(locks: &LockManager, _witness: Witness) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    panic!("as planned");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_body_is_dropped_before_its_lock_is_released() {
    let locks = LockManager::in_memory();
    let (witness, seen) = Witness::new(&locks, "panic");
    let task = tokio::spawn({
        let locks = locks.clone();
        async move { panics(&locks, witness).await }
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(seen.load(Ordering::SeqCst), HELD);
    let guard = locks.mutex("panic").acquire().await.unwrap();
    guard.release().await.unwrap();
}
