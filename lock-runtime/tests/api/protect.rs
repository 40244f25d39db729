//! What `LockGuard::protect` does with a body and its hold.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_runtime::{Lease, LockError, LockManager, LockRequest, MemoryStore, Outcome};

fn now(locks: &LockManager, name: &str) -> LockRequest {
    locks.mutex(name).wait(Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_protected_body_holds_the_lock_to_its_end_and_may_re_enter() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let outcome = guard
        .protect(async {
            assert!(
                now(&locks, "a").acquire().await.is_ok(),
                "the body is nested"
            );
            let other = tokio::spawn(now(&locks, "a").acquire()).await.unwrap();
            assert!(matches!(other, Err(LockError::Busy { .. })));
            7
        })
        .await;
    assert!(matches!(
        outcome,
        Outcome::Completed {
            value: 7,
            loss: None
        }
    ));
    assert!(
        now(&locks, "a").acquire().await.is_ok(),
        "released before the value is returned"
    );
}

#[tokio::test(start_paused = true)]
async fn a_value_counts_despite_a_loss_in_the_last_step_of_the_body() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (locks, other) = (manager().unwrap(), manager().unwrap());
    let loses_it = async || {
        // The store answers at once, so this is one step.
        assert!(other.force_release("a").await.unwrap());
        7
    };
    let value = now(&locks, "a").run(async |_| loses_it().await);
    assert_eq!(value.await.unwrap(), 7);
    let guard = now(&locks, "a").acquire().await.unwrap();
    let outcome = guard.protect(loses_it()).await;
    let Outcome::Completed {
        value: 7,
        loss: Some(loss),
    } = &outcome
    else {
        panic!("{outcome:?}");
    };
    assert!(matches!(
        loss,
        LockError::Lost {
            completed: true,
            ..
        }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_protected_body_is_dropped_when_the_hold_is_lost() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let body = tokio::spawn(guard.protect(std::future::pending::<()>()));
    assert!(locks.force_release("a").await.unwrap());
    assert!(matches!(
        body.await.unwrap(),
        Outcome::Cancelled {
            loss: LockError::Lost {
                completed: false,
                ..
            }
        }
    ));
}

/// Panics when polled; notes when it is dropped whether the lock was still held.
struct Bomb {
    lease: lock_runtime::Lease,
    held_at_drop: Arc<AtomicBool>,
}

impl Future for Bomb {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        panic!("as planned")
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.held_at_drop
            .store(self.lease.is_held(), Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_panicking_body_is_dropped_under_the_lock() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let held_at_drop = Arc::new(AtomicBool::new(false));
    let bomb = Bomb {
        lease: guard.lease(),
        held_at_drop: held_at_drop.clone(),
    };
    let mut protect = Box::pin(guard.protect(bomb));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _ = protect
            .as_mut()
            .poll(&mut Context::from_waker(std::task::Waker::noop()));
    }));
    assert!(panicked.is_err());
    drop(protect);
    assert!(held_at_drop.load(Ordering::SeqCst));
    assert!(
        locks.mutex("a").acquire().await.is_ok(),
        "released after the panic"
    );
}

#[tokio::test(start_paused = true)]
async fn code_under_a_lock_finds_the_lease_of_the_innermost_one() {
    let locks = LockManager::in_memory();
    let name = || Lease::current().map(|lease| lease.name().to_owned());
    assert_eq!(name(), None);
    let _kept = locks.mutex("kept").acquire().await.unwrap();
    assert_eq!(name(), None, "a guard in a variable surrounds nothing");
    let outer = locks.mutex("outer").run(async |lease| {
        let here = Lease::current().unwrap();
        assert_eq!(here.fencing_token(), lease.fencing_token());
        let both = [locks.mutex("a"), locks.mutex("b")];
        let inner = locks.multi(both).run(async |_| {
            let lease = Lease::current().unwrap();
            assert_eq!(lease.members().count(), 2);
            name()
        });
        assert_eq!(inner.await.unwrap().as_deref(), Some("a, b"));
        assert!(
            tokio::spawn(async { Lease::current().is_none() })
                .await
                .unwrap()
        );
        name()
    });
    assert_eq!(outer.await.unwrap().as_deref(), Some("outer"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_found_passes_its_hold_on() {
    let locks = LockManager::in_memory();
    let nested = locks.clone();
    let done = locks.mutex("a").run(async move |_| {
        let lease = Lease::current().unwrap();
        let again = lease.scope(async move { now(&nested, "a").acquire().await.is_ok() });
        tokio::spawn(again).await.unwrap()
    });
    assert!(done.await.unwrap(), "it re-enters in another task");
}
