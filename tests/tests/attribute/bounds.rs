//! The attribute and the runtime have the same bounds for durations: both accept a value just inside a bound and refuse
//! one just outside it. The literals that the attribute refuses are in `lock-macros/tests/ui/fail`: `lease_too_short`,
//! `lease_too_long`, `lease_too_short_to_renew`, `min_hold_too_long`, `keep_for_too_long` and `max_hold_too_short` are
//! one millisecond outside.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, distributed_lock};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[distributed_lock(key = "a", manager = locks, lease = "50ms", auto_renew = false)]
async fn shortest(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = locks, lease = "1s")]
async fn shortest_renewed(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = locks, lease = "24h")]
async fn longest(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "kept {name}", manager = locks, min_hold = "50ms")]
async fn kept_shortest(locks: &LockManager, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "kept {name}", manager = locks, min_hold = "24h")]
async fn kept_longest(locks: &LockManager, name: &str) -> Result<(), LockError> {
    Ok(())
}

/// Once in two minutes, and for one minute at most.
#[distributed_lock(key = "kept {name}", manager = locks, min_hold = "2m", max_hold = "1m")]
async fn kept_for_longer_than_held(locks: &LockManager, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = locks, max_hold = "50ms")]
async fn held_shortest(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "idle {name}", manager = locks, keep_for = "50ms")]
async fn idle_shortest(locks: &LockManager, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "idle {name}", manager = locks, keep_for = "24h")]
async fn idle_longest(locks: &LockManager, name: &str) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn durations_that_the_attribute_accepts_are_accepted() {
    let locks = LockManager::in_memory();
    shortest(&locks).await.unwrap();
    shortest_renewed(&locks).await.unwrap();
    longest(&locks).await.unwrap();
    held_shortest(&locks).await.unwrap();
    kept_shortest(&locks, "a").await.unwrap();
    kept_for_longer_than_held(&locks, "c").await.unwrap();
    assert!(locks.inspect("kept c").await.unwrap().held);
    kept_longest(&locks, "b").await.unwrap();
    idle_shortest(&locks, "a").await.unwrap();
    idle_longest(&locks, "b").await.unwrap();
}

#[distributed_lock(key = "a", manager = locks, lease = lease, auto_renew = renewed)]
async fn leased(locks: &LockManager, lease: Duration, renewed: bool) -> Result<(), LockError> {
    panic!("the body must not run");
}

#[distributed_lock(key = "a", manager = locks, min_hold = least)]
async fn kept(locks: &LockManager, least: Duration) -> Result<(), LockError> {
    panic!("the body must not run");
}

#[distributed_lock(key = "a", manager = locks, keep_for = idle, auto_renew = renewed)]
async fn idle(locks: &LockManager, idle: Duration, renewed: bool) -> Result<(), LockError> {
    panic!("the body must not run");
}

#[distributed_lock(key = "a", manager = locks, max_hold = longest)]
async fn held(locks: &LockManager, longest: Duration) -> Result<(), LockError> {
    panic!("the body must not run");
}

#[tokio::test(start_paused = true)]
async fn durations_that_the_attribute_refuses_are_refused() {
    let locks = LockManager::in_memory();
    for (lease, renewed) in [
        (49 * MS, false),
        (999 * MS, true),
        (DAY + MS, true),
        (DAY + MS, false),
    ] {
        let error = leased(&locks, lease, renewed).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidLease { .. }), "{error:?}");
    }
    for least in [49 * MS, DAY + MS] {
        let error = kept(&locks, least).await.unwrap_err();
        assert!(
            matches!(error, LockError::InvalidConfig { .. }),
            "{error:?}"
        );
    }
    for (keep_for, renewed) in [(49 * MS, true), (DAY + MS, true), (DAY, false)] {
        let error = idle(&locks, keep_for, renewed).await.unwrap_err();
        assert!(
            matches!(error, LockError::InvalidConfig { .. }),
            "{error:?}"
        );
    }
    let error = held(&locks, 49 * MS).await.unwrap_err();
    assert!(
        matches!(error, LockError::InvalidConfig { .. }),
        "{error:?}"
    );
}
