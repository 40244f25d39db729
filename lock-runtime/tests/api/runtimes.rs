//! Managers and the runtimes that they are used in, one after the other and beside each other.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// With its clock standing still, so that leases end only where a test sleeps.
fn paused() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

async fn acquire(locks: &LockManager, name: &str) -> Result<LockGuard, LockError> {
    locks.mutex(name).wait(Duration::ZERO).acquire().await
}

#[test]
fn a_memory_manager_is_used_in_one_runtime_after_the_other() {
    let locks = LockManager::in_memory();
    for _ in 0..40 {
        let mut guard = None;
        runtime().block_on(async {
            let kept = acquire(&locks, "kept").await.unwrap();
            // Given back in the background, in the moment in which the runtime ends.
            drop(acquire(&locks, "dropped").await.unwrap());
            guard = Some(acquire(&locks, "outlives").await.unwrap());
            kept.release().await.unwrap();
        });
        // Outside of every runtime.
        drop(guard);
    }
}

#[test]
fn a_guard_that_a_panic_drops_with_its_runtime_is_given_back() {
    let locks = LockManager::in_memory();
    let in_vain = locks.clone();
    let panicked = std::thread::spawn(move || {
        runtime().block_on(async {
            let _guard = acquire(&in_vain, "a").await.unwrap();
            panic!("as a test that fails");
        });
    });
    panicked.join().unwrap_err();
    let again = runtime().block_on(acquire(&locks, "a"));
    drop(again.unwrap());
}

#[test]
fn a_hold_goes_on_being_renewed_when_another_runtime_ends() {
    let (first, second) = (runtime(), paused());
    let locks = LockManager::builder()
        .lease(Duration::from_secs(3))
        .in_memory()
        .unwrap();
    first.block_on(async { acquire(&locks, "a").await.unwrap().release().await.unwrap() });
    let guard = second.block_on(async { acquire(&locks, "b").await.unwrap() });
    drop(first);
    second.block_on(async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_hold_is_lost_when_the_last_runtime_ends() {
    let first = runtime();
    let locks = LockManager::in_memory();
    let guard = first.block_on(async { acquire(&locks, "a").await.unwrap() });
    let lost = guard.lost();
    drop(first);
    assert!(!guard.is_held() && lost.is_lost());
    drop(guard);
    runtime().block_on(async {
        let again = acquire(&locks, "a").await;
        again.unwrap().release().await.unwrap();
    });
}

#[test]
fn waiters_of_two_runtimes_take_turns() {
    let locks = LockManager::in_memory();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let locks = locks.clone();
            std::thread::spawn(move || {
                for _ in 0..20 {
                    runtime().block_on(async {
                        for _ in 0..10 {
                            let guard = locks.mutex("shared").acquire().await.unwrap();
                            tokio::task::yield_now().await;
                            guard.release().await.unwrap();
                        }
                    });
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_shutdown_is_for_all_runtimes() {
    let locks = LockManager::in_memory();
    runtime().block_on(locks.shutdown());
    let refused = runtime().block_on(acquire(&locks, "a"));
    assert!(
        matches!(refused, Err(LockError::ShuttingDown { .. })),
        "{refused:?}"
    );
}
