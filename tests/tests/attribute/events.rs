//! Tests of what the attribute logs: failures that no return value can tell, and locks under their template or label.

use lock_runtime::{LockError, LockManager, distributed_lock};
use tests::Events;
use tracing::Level;

#[distributed_lock(key = "job", manager = locks, on_busy = skip)]
async fn in_silence(locks: &LockManager) {}

#[distributed_lock(key = "job", manager = locks, on_busy = skip)]
async fn with_value(locks: &LockManager) -> Option<u32> {
    Some(7)
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_skip_cannot_return_is_logged_unlike_busy() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let locks = LockManager::in_memory();
    let guard = locks.mutex("job").acquire().await.unwrap();
    in_silence(&locks).await;
    assert_eq!(with_value(&locks).await, None);
    assert!(events.of(Level::ERROR).is_empty(), "busy is no failure");
    guard.release().await.unwrap();
    assert_eq!(with_value(&locks).await, Some(7));

    locks.shutdown().await;
    in_silence(&locks).await;
    assert_eq!(with_value(&locks).await, None, "not run");
    let errors = events.of(Level::ERROR);
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in errors {
        assert!(
            error.contains("did not run") && error.contains("shut"),
            "{error}"
        );
    }
}

#[distributed_lock(key = "order:{id}", manager = locks)]
async fn by_template(locks: &LockManager, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:{id}", manager = locks, label = "settle")]
async fn by_label(locks: &LockManager, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn logs_call_a_lock_by_its_template_or_its_label() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let locks = LockManager::in_memory();
    by_template(&locks, 7).await.unwrap();
    by_label(&locks, 8).await.unwrap();
    let acquired = events.of(Level::DEBUG);
    let with = |part: &str| acquired.iter().filter(|text| text.contains(part)).count();
    assert!(with("label=\"order:{id}\"") > 0, "{acquired:?}");
    assert!(with("label=\"settle\"") > 0, "{acquired:?}");
}
