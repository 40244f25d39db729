//! Who is nested in whom when bodies change their task, and when futures leave their body.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, TryAcquire};
use tokio::sync::oneshot;

const MS: Duration = Duration::from_millis(1);
/// Bounds a test that fails: nobody waits so long for a hold that is shared.
const LONG: Duration = Duration::from_secs(5);

type Acquired = Result<LockGuard, LockError>;

/// Polls the future once; it must have to wait.
async fn begin<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "the future has to wait for something");
}

#[track_caller]
fn assert_stranger(acquired: &Acquired) {
    assert!(
        matches!(acquired, Err(LockError::Busy { .. })),
        "a stranger waits: {acquired:?}"
    );
}

async fn is_free(locks: &LockManager, key: &str) -> bool {
    matches!(
        locks.mutex(key).try_acquire().await.unwrap(),
        TryAcquire::Acquired(_)
    )
}

/// A request that only a re-entry can grant while somebody holds the lock.
fn again(
    locks: &LockManager,
    key: &'static str,
) -> impl Future<Output = Acquired> + 'static + use<> {
    let request = locks.mutex(key).wait(LONG);
    async move { request.acquire().await }
}

/// A request of a stranger, who is soon told so.
fn soon(locks: &LockManager, key: &'static str) -> lock_runtime::LockRequest {
    locks.mutex(key).wait(50 * MS)
}

/// Runs each behaviour as a task, on one thread and on two.
macro_rules! on_both_runtimes {
    ($($(#[$attribute:meta])* async fn $name:ident() $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            async fn behaviour() $body

            #[tokio::test]
            async fn on_one_thread() {
                tokio::spawn(behaviour()).await.unwrap();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_two_threads() {
                tokio::spawn(behaviour()).await.unwrap();
            }
        }
    )*};
}

on_both_runtimes! {
    async fn a_run_that_another_task_goes_on_with_re_enters_there() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let nested = again(&locks, "a");
        let mut run = Box::pin(locks.mutex("a").run(|_| async move {
            gone.await.unwrap();
            nested.await.map(drop)
        }));
        begin(&mut run).await;
        let moved = tokio::spawn(run);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap().unwrap();
    }

    async fn all_of_a_nest_that_another_task_goes_on_with_re_enters_there() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let (outer, inner, b) = (again(&locks, "a"), again(&locks, "b"), locks.mutex("b"));
        let mut run = Box::pin(locks.mutex("a").run(|_| async move {
            b.run(|lease| async move {
                gone.await.unwrap();
                drop(outer.await.unwrap());
                lease.scope(inner).await.map(drop)
            })
            .await
        }));
        begin(&mut run).await;
        let moved = tokio::spawn(run);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap().unwrap().unwrap();
    }

    async fn a_run_that_comes_back_to_its_first_task_re_enters_there() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let nested = again(&locks, "a");
        let mut run = Box::pin(locks.mutex("a").run(|_| async move {
            gone.await.unwrap();
            nested.await.map(drop)
        }));
        begin(&mut run).await;
        let (back, again) = oneshot::channel();
        tokio::spawn(async move {
            begin(&mut run).await;
            assert!(back.send(run).is_ok());
        });
        let run = again.await.unwrap();
        go.send(()).unwrap();
        run.await.unwrap().unwrap();
    }

    async fn a_scope_that_another_task_goes_on_with_re_enters_there() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let nested = again(&locks, "a");
        let guard = locks.mutex("a").acquire().await.unwrap();
        let mut scope = Box::pin(guard.scope(async move {
            gone.await.unwrap();
            nested.await.map(drop)
        }));
        begin(&mut scope).await;
        let moved = tokio::spawn(scope);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap();
    }

    async fn a_set_re_enters_all_its_locks_in_the_task_it_moves_to() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let (a, b) = (again(&locks, "a"), again(&locks, "b"));
        let set = locks.multi([locks.mutex("a"), locks.mutex("b")]);
        let mut run = Box::pin(set.run(|_| async move {
            gone.await.unwrap();
            drop(a.await.unwrap());
            b.await.map(drop)
        }));
        begin(&mut run).await;
        let moved = tokio::spawn(run);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap().unwrap();
    }

    /// Not for what its body asks for: for the lock that the run itself has yet to get.
    async fn a_waiting_nested_run_keeps_its_turn_when_its_body_moves() {
        let locks = LockManager::in_memory();
        let (go, gone) = oneshot::channel();
        let (first, nested) = (again(&locks, "a"), again(&locks, "a"));
        let mut run = Box::pin(locks.mutex("a").run(|_| async move {
            let first = first.await.unwrap();
            let leave = async move {
                gone.await.unwrap();
                drop(first);
            };
            tokio::join!(nested, leave).0.map(drop)
        }));
        begin(&mut run).await;
        let moved = tokio::spawn(run);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap().unwrap();
    }

    async fn a_scope_hands_its_hold_to_a_task_but_not_the_holds_around_it() {
        let locks = LockManager::in_memory();
        let (a, b) = (soon(&locks, "a"), again(&locks, "b"));
        let around = locks.mutex("a").run(async |outer| {
            locks.mutex("b").run(async |inner| {
                let spawned = inner.scope(async move {
                    drop(b.await.unwrap());
                    a.acquire().await
                });
                assert_stranger(&tokio::spawn(spawned).await.unwrap());
                let both = outer.scope(inner.scope(again(&locks, "a")));
                drop(tokio::spawn(both).await.unwrap().unwrap());
            }).await
        });
        around.await.unwrap().unwrap();
    }

    async fn a_request_that_was_made_inside_and_spawned_is_a_stranger() {
        let locks = LockManager::in_memory();
        locks.mutex("a").run(async |_| {
            let spawned = tokio::spawn(soon(&locks, "a").acquire());
            assert_stranger(&spawned.await.unwrap());
            let spawned = tokio::spawn(locks.mutex("a").try_acquire());
            assert!(matches!(spawned.await.unwrap().unwrap(), TryAcquire::Busy { .. }));
        }).await.unwrap();
    }

    async fn a_request_spawned_out_of_its_body_after_a_wait_is_a_stranger() {
        let locks = LockManager::in_memory();
        locks.mutex("a").run(async |outer| {
            let sibling = locks.mutex("a").acquire().await.unwrap();
            let mut waiting = Box::pin(locks.mutex("a").wait(200 * MS).acquire());
            begin(&mut waiting).await;
            let spawned = tokio::spawn(waiting);
            sibling.release().await.unwrap();
            assert_stranger(&spawned.await.unwrap());
            assert!(outer.is_held());
        }).await.unwrap();
        assert!(is_free(&locks, "a").await);
    }

    async fn a_nested_run_in_another_task_is_a_stranger_to_its_old_body() {
        let locks = LockManager::in_memory();
        locks.mutex("a").run(async |_| {
            let (go, gone) = oneshot::channel();
            let (outer, inner, b) = (soon(&locks, "a"), again(&locks, "b"), locks.mutex("b"));
            let mut nested = Box::pin(b.run(|lease| async move {
                gone.await.unwrap();
                drop(inner.await.unwrap());
                let scoped = lease.scope(async { outer.clone().acquire().await }).await;
                assert_stranger(&scoped);
                outer.acquire().await
            }));
            begin(&mut nested).await;
            let moved = tokio::spawn(nested);
            go.send(()).unwrap();
            assert_stranger(&moved.await.unwrap().unwrap());
        }).await.unwrap();
        assert!(is_free(&locks, "a").await && is_free(&locks, "b").await);
    }

    async fn a_request_left_behind_by_its_body_is_a_stranger() {
        let locks = LockManager::in_memory();
        let (out, outside) = oneshot::channel();
        let (go, gone) = oneshot::channel::<()>();
        let request = soon(&locks, "a");
        let mut run = Box::pin(locks.mutex("a").run(|_| async move {
            assert!(out.send(request.acquire()).is_ok());
            let _ = gone.await;
        }));
        begin(&mut run).await;
        let left = outside.await.unwrap();
        let (polled, elsewhere) = oneshot::channel();
        let moved = tokio::spawn(async move {
            begin(&mut run).await;
            polled.send(()).unwrap();
            run.await
        });
        elsewhere.await.unwrap();
        assert_stranger(&left.await);
        go.send(()).unwrap();
        moved.await.unwrap().unwrap();
    }

    async fn the_body_of_a_task_that_a_body_drives_is_a_stranger() {
        let locks = LockManager::in_memory();
        locks.mutex("a").run(async |_| {
            let request = soon(&locks, "a");
            // In `block_in_place` where there are threads to spare, a thread of its own otherwise: either way, the
            // tasks of another runtime are driven by something else than this task.
            let driven = std::thread::spawn(move || {
                let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                other.block_on(async move { tokio::spawn(request.acquire()).await.unwrap() })
            });
            let driven = tokio::task::spawn_blocking(|| driven.join().unwrap());
            assert_stranger(&driven.await.unwrap());
        }).await.unwrap();
    }
}

#[cfg(feature = "macros")]
mod annotated {
    use super::*;
    use lock_runtime::distributed_lock;

    #[distributed_lock(key = "order", manager = locks, wait = "5s")]
    async fn outer(locks: &LockManager, gone: oneshot::Receiver<()>) -> Result<u32, LockError> {
        let _ = gone.await;
        inner(locks).await
    }

    #[distributed_lock(key = "order", manager = locks, wait = "5s")]
    async fn inner(locks: &LockManager) -> Result<u32, LockError> {
        Ok(7)
    }

    on_both_runtimes! {
        async fn a_function_that_another_task_goes_on_with_re_enters_there() {
            let locks = LockManager::in_memory();
            let (go, gone) = oneshot::channel();
            let mut call = Box::pin(async move { outer(&locks, gone).await });
            begin(&mut call).await;
            let moved = tokio::spawn(call);
            go.send(()).unwrap();
            assert_eq!(moved.await.unwrap().unwrap(), 7);
        }
    }
}

fn on_this_thread<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

#[test]
fn outside_of_tasks_another_thread_is_a_stranger() {
    let home = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let locks = home.block_on(async { LockManager::in_memory() });
    home.block_on(async {
        locks
            .mutex("a")
            .run(async |outer| {
                let (acquire, tried) =
                    (soon(&locks, "a").acquire(), locks.mutex("a").try_acquire());
                let elsewhere = std::thread::spawn(move || {
                    on_this_thread(async {
                        (
                            acquire.await,
                            matches!(tried.await.unwrap(), TryAcquire::Acquired(_)),
                        )
                    })
                });
                let elsewhere = tokio::task::spawn_blocking(|| elsewhere.join().unwrap());
                let (acquired, tried) = elsewhere.await.unwrap();
                assert_stranger(&acquired);
                assert!(!tried, "another thread re-entered");
                drop(again(&locks, "a").await.unwrap());
                assert!(outer.is_held());
            })
            .await
            .unwrap();
    });
}

#[test]
fn a_body_that_moves_to_a_thread_without_a_task_re_enters_there() {
    let home = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let locks = home.block_on(async { LockManager::in_memory() });
    let (go, gone) = oneshot::channel();
    let nested = again(&locks, "a");
    let mut run = Box::pin(locks.mutex("a").run(|_| async move {
        gone.await.unwrap();
        nested.await.map(drop)
    }));
    home.block_on(begin(&mut run));
    go.send(()).unwrap();
    let elsewhere = std::thread::spawn(move || on_this_thread(run));
    elsewhere.join().unwrap().unwrap().unwrap();
}
