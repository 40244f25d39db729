//! What the guide's table "What looks locked and is not" says happens, where no compiler tells.

use lock_runtime::{LockError, LockManager, TryAcquire};

async fn is_locked(locks: &LockManager) -> bool {
    locks.inspect("a").await.unwrap().held
}

/// A guard that is dropped gives its lock back in the background.
async fn is_unlocked_soon(locks: &LockManager) -> bool {
    for _ in 0..100 {
        if !is_locked(locks).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_only_looks_at_the_guard_drops_it() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    if matches!(
        locks.mutex("a").try_acquire().await?,
        TryAcquire::Acquired(_)
    ) {
        assert!(is_unlocked_soon(&locks).await);
    }
    if locks.mutex("a").acquire().await.is_ok() {
        assert!(is_unlocked_soon(&locks).await);
    }
    let token = locks.mutex("a").acquire().await?.fencing_token();
    assert!(token.is_some() && is_unlocked_soon(&locks).await);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pattern_without_a_name_keeps_no_guard() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let TryAcquire::Acquired(_) = locks.mutex("a").try_acquire().await? else {
        panic!("it is free");
    };
    assert!(is_unlocked_soon(&locks).await);
    let TryAcquire::Acquired(guard) = locks.mutex("a").try_acquire().await? else {
        panic!("it is free");
    };
    assert!(!is_unlocked_soon(&locks).await);
    guard.release().await
}

#[tokio::test(start_paused = true)]
async fn a_guard_of_the_same_name_does_not_end_the_one_before() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("a").acquire().await?;
    let _guard = locks.mutex("b").acquire().await?;
    assert!(!is_unlocked_soon(&locks).await);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_guard_moved_into_a_closure_or_a_task_ends_with_it() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await?;
    let owner = tokio::spawn(async move { guard.fencing_token() });
    assert!(owner.await.unwrap().is_some());
    assert!(is_unlocked_soon(&locks).await);
    let guard = locks.mutex("a").acquire().await?;
    let owner = move || guard.release();
    owner().await?;
    assert!(!is_locked(&locks).await);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_body_spawns_goes_on_without_the_lock() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let (begin, begun) = tokio::sync::oneshot::channel::<()>();
    let other = locks.clone();
    // Clippy tells of a body that returns what can be awaited, if the body is a block.
    #[expect(clippy::async_yields_async)]
    let body = locks.mutex("a").run(async |_| {
        tokio::spawn(async move {
            begun.await.unwrap();
            is_locked(&other).await
        })
    });
    let spawned = body.await?;
    begin.send(()).unwrap();
    assert!(!spawned.await.unwrap());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_future_awaited_after_the_body_runs_without_the_lock() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let working = locks.mutex("a").run(async |_| is_locked(&locks)).await?;
    assert!(!working.await);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn managers_in_memory_do_not_exclude_each_other() -> Result<(), LockError> {
    let _guard = LockManager::in_memory().mutex("a").acquire().await?;
    let other = LockManager::in_memory().mutex("a").try_acquire().await?;
    drop(other.expect("each manager has its own memory"));
    Ok(())
}
