//! What is answered without I/O takes part in tokio's cooperative budget: a loop of such requests lets the other
//! tasks of its thread run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, MemoryStore, TryAcquire};

/// A budget is used up long before.
const TRIES: u32 = 10_000;

/// Repeats `ask` on a thread with one other task, which must get to run meanwhile.
async fn lets_others_run(what: &str, mut ask: impl AsyncFnMut()) {
    let ran = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn({
        let ran = ran.clone();
        async move { ran.store(true, Ordering::SeqCst) }
    });
    for _ in 0..TRIES {
        if ran.load(Ordering::SeqCst) {
            break;
        }
        ask().await;
    }
    assert!(
        ran.load(Ordering::SeqCst),
        "{what}: {TRIES} in a row kept the thread"
    );
    other.await.unwrap();
}

fn is_busy<T>(answer: &Result<T, LockError>) -> bool {
    matches!(
        answer,
        Err(LockError::Busy { .. } | LockError::TooManyWaiters { .. })
    )
}

#[tokio::test]
async fn a_loop_of_tries_lets_the_holder_run_and_release() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
    });
    let mut tries = 0;
    while matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ) {
        tries += 1;
        assert!(tries < TRIES, "the holder never ran");
    }
    holder.await.unwrap();
}

#[tokio::test]
async fn tries_and_refusals_of_every_kind_of_lock_let_others_run() {
    let locks = LockManager::builder()
        .max_waiters_per_key(1)
        .in_memory()
        .unwrap();
    type Make = fn(&LockManager) -> lock_runtime::LockRequest;
    let kinds: [(&str, Make); 5] = [
        ("mutex", |locks| locks.mutex("mutex")),
        ("fair", |locks| locks.fair("fair")),
        ("write", |locks| locks.write("rw")),
        ("fenced", |locks| locks.fenced("fenced")),
        ("permits", |locks| locks.semaphore("permits").permits(1)),
    ];
    assert!(locks.semaphore("permits").try_set_permits(1).await.unwrap());
    for (kind, request) in kinds {
        let guard = request(&locks).acquire().await.unwrap();
        // Where the first of them asks the store, the second one queues behind it.
        let waiting = [0; 2].map(|_| tokio::spawn(request(&locks).wait_forever().acquire()));
        tokio::task::yield_now().await;
        lets_others_run(&format!("{kind}: refused"), async || {
            assert!(is_busy(&request(&locks).acquire().await));
        })
        .await;
        lets_others_run(&format!("{kind}: try"), async || {
            assert!(!matches!(
                request(&locks).try_acquire().await,
                Ok(TryAcquire::Acquired(_))
            ));
        })
        .await;
        waiting.iter().for_each(|waiting| waiting.abort());
        drop(guard);
        lets_others_run(&format!("{kind}: taken and given back"), async || {
            drop(request(&locks).try_acquire().await);
        })
        .await;
    }
    lets_others_run("a bad name", async || {
        assert!(locks.mutex("").acquire().await.is_err());
        assert!(locks.mutex("").try_acquire().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn busy_locks_that_are_not_waited_for_let_others_run() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (holder, locks) = (manager().unwrap(), manager().unwrap());
    // Held through another manager: each try asks the store, which answers at once.
    let _read = holder.read("rw").acquire().await.unwrap();
    let _mutex = holder.mutex("a").acquire().await.unwrap();
    lets_others_run("write", async || {
        assert!(is_busy(
            &locks.write("rw").wait(Duration::ZERO).acquire().await
        ));
    })
    .await;
    lets_others_run("read", async || {
        drop(
            locks
                .read("rw")
                .wait(Duration::ZERO)
                .acquire()
                .await
                .unwrap(),
        );
    })
    .await;
    lets_others_run("a set", async || {
        let set = || locks.multi([locks.mutex("a"), locks.mutex("b")]);
        assert!(is_busy(&set().wait(Duration::ZERO).acquire().await));
        assert!(matches!(
            set().try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
    })
    .await;
}

#[tokio::test]
async fn re_entries_let_others_run() {
    let locks = LockManager::in_memory();
    let body = locks.mutex("a").run(async |_| {
        lets_others_run("acquire", async || {
            let nested = locks.mutex("a").acquire().await.unwrap();
            nested.release().await.unwrap();
        })
        .await;
        lets_others_run("try_acquire", async || {
            drop(
                locks
                    .mutex("a")
                    .try_acquire()
                    .await
                    .unwrap()
                    .expect("it is free"),
            );
        })
        .await;
        lets_others_run("run", async || {
            locks.mutex("a").run(async |_| ()).await.unwrap();
        })
        .await;
        let _turn = locks.mutex("a").acquire().await.unwrap();
        lets_others_run("a try for a turn that is taken", async || {
            assert!(matches!(
                locks.mutex("a").try_acquire().await.unwrap(),
                TryAcquire::Busy { .. }
            ));
        })
        .await;
    });
    body.await.unwrap();
}

#[tokio::test]
async fn counters_let_others_run() {
    let locks = LockManager::builder()
        .max_waiters_per_key(1)
        .in_memory()
        .unwrap();
    let permits = locks.semaphore("permits");
    lets_others_run("try_set_permits", async || {
        permits.try_set_permits(1).await.unwrap();
    })
    .await;
    lets_others_run("available", async || {
        permits.available().await.unwrap();
    })
    .await;
    lets_others_run("add_permits", async || {
        permits.add_permits(1).await.unwrap()
    })
    .await;
    let plain = locks.plain_semaphore("plain");
    plain.try_set_permits(1).await.unwrap();
    plain.permits(1).wait_forever().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let plain = plain.clone();
        async move { plain.permits(1).wait_forever().acquire().await }
    });
    let queued = tokio::spawn({
        let plain = plain.clone();
        async move { plain.permits(1).wait_forever().acquire().await }
    });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    lets_others_run("a plain semaphore with too many waiters", async || {
        assert!(plain.permits(1).try_acquire().await.is_err());
    })
    .await;
    waiting.abort();
    queued.abort();
    let latch = locks.latch("latch");
    lets_others_run("an open latch", async || {
        latch.opened().wait_forever().await.unwrap()
    })
    .await;
    latch.try_set_count(1).await.unwrap();
    lets_others_run("a closed latch", async || {
        assert!(is_busy(&latch.opened().wait(Duration::ZERO).await));
        latch.count().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn operators_let_others_run() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    lets_others_run("inspect", async || {
        assert!(locks.inspect("a").await.unwrap().held)
    })
    .await;
    lets_others_run("force_release", async || {
        assert!(!locks.force_release("b").await.unwrap());
    })
    .await;
    lets_others_run("renew", async || {
        guard.renew(Duration::from_secs(60)).await.unwrap()
    })
    .await;
}

#[cfg(feature = "macros")]
#[tokio::test]
async fn annotated_functions_that_are_refused_at_once_let_others_run() {
    #[lock_runtime::distributed_lock(key = "a")]
    async fn without_a_manager() -> Result<(), LockError> {
        Ok(())
    }
    lets_others_run("refused", async || {
        let refused = without_a_manager().await;
        assert!(
            matches!(refused, Err(LockError::NotInstalled)),
            "{refused:?}"
        );
    })
    .await;
}
