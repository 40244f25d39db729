//! The rows of the guide's table "What looks locked and is not" that clippy, or a lint that is off by default, finds with
//! the configuration that the guide shows. `.ci/run clippy` fails if one of these lints is no longer found
//! (`#[expect]`), or if another one is.
#![allow(missing_docs)]

use lock_runtime::{LockError, LockManager};

pub async fn work() {
    tokio::task::yield_now().await;
}

#[expect(let_underscore_drop, clippy::let_underscore_must_use)]
pub async fn guard_that_nothing_binds(locks: &LockManager) -> Result<(), LockError> {
    let _ = locks.mutex("a").acquire().await?;
    work().await;
    Ok(())
}

#[expect(let_underscore_drop)]
pub async fn guard_that_is_assigned_to_nothing(locks: &LockManager) -> Result<(), LockError> {
    _ = locks.mutex("a").acquire().await?;
    work().await;
    Ok(())
}

#[expect(let_underscore_drop, clippy::let_underscore_must_use)]
pub async fn try_that_nothing_binds(locks: &LockManager) -> Result<(), LockError> {
    let _ = locks.mutex("a").try_acquire().await?;
    work().await;
    Ok(())
}

#[expect(let_underscore_drop, clippy::let_underscore_future)]
pub async fn request_that_is_not_awaited(locks: &LockManager) {
    let _ = locks.mutex("a").acquire();
    work().await;
}

#[expect(let_underscore_drop, clippy::let_underscore_must_use)]
pub async fn outcome_that_nobody_looks_at(locks: &LockManager) -> Result<(), LockError> {
    let _ = locks.mutex("a").run_outcome(async |_| work().await).await?;
    Ok(())
}

#[expect(clippy::let_underscore_must_use)]
pub async fn answer_that_nobody_looks_at(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.mutex("a").acquire().await?;
    let _ = guard.is_held();
    work().await;
    guard.release().await
}

#[expect(clippy::disallowed_methods)]
pub async fn task_of_a_body(locks: &LockManager) -> Result<(), LockError> {
    let spawning = locks.mutex("a").run(async |_| drop(tokio::spawn(work())));
    spawning.await
}

#[expect(clippy::disallowed_methods)]
pub async fn set_of_tasks_of_a_body(locks: &LockManager) -> Result<(), LockError> {
    let spawning = async |_| {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(work());
        tasks.detach_all();
    };
    locks.mutex("a").run(spawning).await
}
