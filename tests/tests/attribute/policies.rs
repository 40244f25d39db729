//! Tests of what the attribute does when the lock is busy, lost, not wanted, or to be kept.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, distributed_lock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::witness::is_held;

#[distributed_lock(key = "job", manager = locks, on_busy = skip)]
async fn skips(locks: &LockManager) -> Result<Option<u32>, LockError> {
    Ok(Some(7))
}

#[distributed_lock(key = "job", manager = locks, on_busy = skip)]
async fn skips_in_silence(locks: &LockManager, ran: &AtomicU32) {
    ran.fetch_add(1, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn skip_does_not_wait_and_returns_nothing() {
    let locks = LockManager::in_memory();
    let ran = AtomicU32::new(0);
    let guard = locks.mutex("job").acquire().await.unwrap();
    let before = Instant::now();
    assert_eq!(skips(&locks).await.unwrap(), None);
    skips_in_silence(&locks, &ran).await;
    assert_eq!(
        (before.elapsed(), ran.load(Ordering::SeqCst)),
        (Duration::ZERO, 0)
    );
    guard.release().await.unwrap();
    assert_eq!(skips(&locks).await.unwrap(), Some(7));
    skips_in_silence(&locks, &ran).await;
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_look_like_skipped() {
    let locks = LockManager::in_memory();
    locks.shutdown().await;
    let error = skips(&locks).await.unwrap_err();
    assert!(matches!(error, LockError::ShuttingDown { .. }), "{error}");
}

#[distributed_lock(key = "cache:{id}", manager = locks, wait = "100ms", on_busy = call(stale))]
async fn fresh(locks: &LockManager, id: u32, part: String) -> Result<String, LockError> {
    Ok(format!("fresh {id} {part}"))
}

async fn stale(
    _: &LockManager,
    id: u32,
    part: String,
    error: LockError,
) -> Result<String, LockError> {
    tokio::task::yield_now().await;
    assert!(matches!(error, LockError::Busy { .. }), "{error}");
    Ok(format!("stale {id} {part}"))
}

#[distributed_lock(key = "{part}", manager = locks, on_busy = call(unreachable))]
async fn refused(locks: &LockManager, part: &str) -> Result<(), LockError> {
    Ok(())
}

fn unreachable(_: &LockManager, _: &str, error: LockError) -> Result<(), LockError> {
    panic!("only a busy lock calls: {error}");
}

#[tokio::test(start_paused = true)]
async fn call_answers_with_the_arguments_only_when_the_lock_is_busy() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("cache:7").acquire().await.unwrap();
    assert_eq!(fresh(&locks, 7, "x".into()).await.unwrap(), "stale 7 x");
    assert_eq!(fresh(&locks, 8, "x".into()).await.unwrap(), "fresh 8 x");
    let error = refused(&locks, "").await.unwrap_err();
    assert!(matches!(error, LockError::InvalidName { .. }), "{error}");
}

#[distributed_lock(key = "a", manager = locks, wait = "0s", map_err = status)]
async fn mapped(locks: &LockManager, started: &Notify) -> u16 {
    started.notify_one();
    std::future::pending().await
}

fn status(error: LockError) -> u16 {
    match error {
        LockError::Busy { .. } => 423,
        LockError::Lost { .. } => 503,
        _ => 500,
    }
}

#[tokio::test(start_paused = true)]
async fn map_err_makes_the_answer_to_a_refusal_and_to_a_loss() {
    let locks = LockManager::in_memory();
    let started = Notify::new();
    let (lost, ()) = tokio::join!(mapped(&locks, &started), async {
        started.notified().await;
        assert_eq!(
            tokio::spawn(mapped_elsewhere(locks.clone())).await.unwrap(),
            423
        );
        locks.force_release("a").await.unwrap();
    });
    assert_eq!(lost, 503);
}

async fn mapped_elsewhere(locks: LockManager) -> u16 {
    mapped(&locks, &Notify::new()).await
}

#[distributed_lock(key = "when", manager = locks, wait = "0s", when = wanted, guard = lease)]
async fn sometimes(locks: &LockManager, wanted: bool) -> Result<bool, LockError> {
    Ok(lease.is_some_and(|lease| lease.is_held()))
}

#[tokio::test(start_paused = true)]
async fn when_false_runs_the_body_without_the_lock() {
    let locks = LockManager::in_memory();
    assert!(sometimes(&locks, true).await.unwrap());
    let _guard = locks.mutex("when").acquire().await.unwrap();
    assert!(!sometimes(&locks, false).await.unwrap());
    let error = sometimes(&locks, true).await.unwrap_err();
    assert!(matches!(error, LockError::Busy { .. }), "{error}");
}

/// The signals between a body and the code that takes its lock away.
#[derive(Default)]
struct Steps {
    started: Notify,
    go_on: Notify,
    done: AtomicBool,
}

impl Steps {
    async fn walk(&self) -> u32 {
        self.started.notify_one();
        self.go_on.notified().await;
        self.done.store(true, Ordering::SeqCst);
        7
    }

    /// Takes the lock away while the body waits, then lets the body go on.
    async fn lose(&self, locks: &LockManager, name: &str) {
        self.started.notified().await;
        locks.force_release(name).await.unwrap();
        tokio::task::yield_now().await;
        self.go_on.notify_one();
    }
}

#[distributed_lock(key = "finish", manager = locks, on_lost = finish)]
async fn finishes(locks: &LockManager, steps: &Steps) -> Result<u32, LockError> {
    Ok(steps.walk().await)
}

#[distributed_lock(key = "error", manager = locks, on_lost = error)]
async fn errs(locks: &LockManager, steps: &Steps) -> Result<u32, LockError> {
    Ok(steps.walk().await)
}

#[distributed_lock(key = "error", manager = locks, on_lost = error)]
async fn completes_just_before(locks: &LockManager) -> Result<(), LockError> {
    // Nobody tells the hold that it is lost, so the release finds out.
    let other = locks.clone();
    other.force_release("error").await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn finish_lets_a_body_end_that_lost_its_lock() {
    let (locks, steps) = (LockManager::in_memory(), Steps::default());
    let (outcome, ()) = tokio::join!(finishes(&locks, &steps), steps.lose(&locks, "finish"));
    assert_eq!(outcome.unwrap(), 7);
    assert!(steps.done.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn error_drops_the_body_and_refuses_one_that_had_completed() {
    let (locks, steps) = (LockManager::in_memory(), Steps::default());
    let (outcome, ()) = tokio::join!(errs(&locks, &steps), steps.lose(&locks, "error"));
    assert!(
        matches!(
            outcome,
            Err(LockError::Lost {
                completed: false,
                ..
            })
        ),
        "{outcome:?}"
    );
    assert!(!steps.done.load(Ordering::SeqCst));
    let outcome = completes_just_before(&locks).await;
    let Err(LockError::Lost {
        reason, completed, ..
    }) = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!((reason, completed), (LostReason::ForceReleased, true));
}

#[distributed_lock(key = "tick", manager = locks, on_busy = skip, lease = "2s", min_hold = least)]
async fn tick(locks: &LockManager, least: Duration) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_after_a_short_body_and_no_longer() {
    let locks = LockManager::in_memory();
    let before = Instant::now();
    let least = Duration::from_secs(55);
    assert!(tick(&locks, least).await.unwrap().is_some());
    assert_eq!(before.elapsed(), Duration::ZERO);
    // The store keeps the key for that long, even if this process ends.
    let ttl = locks.inspect("tick").await.unwrap().ttl.unwrap();
    assert!(ttl >= least, "{ttl:?}");
    assert!(tick(&locks, least).await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(54)).await;
    assert!(tick(&locks, least).await.unwrap().is_none());
    locks
        .mutex("tick")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let waited = before.elapsed();
    assert!(
        waited >= least && waited < least + Duration::from_secs(1),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_a_min_hold_key_taken_without_a_wait() {
    let store = lock_runtime::MemoryStore::new();
    let manager = || tests::builder().memory_store(&store).in_memory();
    let (locks, other) = (manager().unwrap(), manager().unwrap());
    let least = Duration::from_secs(55);
    tick(&locks, least).await.unwrap().unwrap();
    let before = Instant::now();
    locks.shutdown().await;
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "{:?}",
        before.elapsed()
    );
    assert!(is_held(&other, "tick").await);
    assert!(tick(&other, least).await.unwrap().is_none());
}

#[distributed_lock(key = "dropped", manager = locks, min_hold = "10s")]
async fn endless(locks: &LockManager, started: &Notify) -> Result<(), LockError> {
    started.notify_one();
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn min_hold_counts_for_a_call_that_was_dropped_too() {
    let locks = LockManager::in_memory();
    let before = Instant::now();
    let started = Arc::new(Notify::new());
    let call = tokio::spawn({
        let (locks, started) = (locks.clone(), started.clone());
        async move { endless(&locks, &started).await }
    });
    started.notified().await;
    call.abort();
    let guard = locks
        .mutex("dropped")
        .wait(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    assert!(
        before.elapsed() >= Duration::from_secs(10),
        "{:?}",
        before.elapsed()
    );
    guard.release().await.unwrap();
}

#[distributed_lock(key = "deferred", manager = locks)]
fn deferred<'a>(
    locks: &'a LockManager,
    made: &'a AtomicU32,
) -> impl Future<Output = Result<bool, LockError>> + 'a {
    made.fetch_add(1, Ordering::SeqCst);
    async move { Ok(is_held(locks, "deferred").await) }
}

#[tokio::test(start_paused = true)]
async fn a_function_that_returns_a_future_is_deferred_as_a_whole() {
    let locks = LockManager::in_memory();
    let made = AtomicU32::new(0);
    let call = deferred(&locks, &made);
    assert_eq!(made.load(Ordering::SeqCst), 0);
    assert!(call.await.unwrap());
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

struct Registry {
    managers: Mutex<Vec<LockManager>>,
    wait: Mutex<Duration>,
}

#[distributed_lock(
    key = "busy",
    manager = registry.managers.lock().unwrap()[0],
    wait = *registry.wait.lock().unwrap()
)]
async fn registered(registry: &Registry) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_holds_nothing_that_its_options_locked() {
    let locks = LockManager::in_memory();
    let registry = Arc::new(Registry {
        managers: Mutex::new(vec![locks.clone()]),
        wait: Mutex::new(Duration::from_secs(60)),
    });
    let guard = locks.mutex("busy").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let registry = registry.clone();
        async move { registered(&registry).await }
    });
    tests::eventually("the call waits", async || {
        locks.inspect("busy").await.unwrap().local_waiters > 0
    })
    .await;
    assert!(registry.managers.try_lock().is_ok());
    assert!(registry.wait.try_lock().is_ok());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[distributed_lock(key = "cart:{id}", manager = locks, keep_for = "5s")]
async fn keeps(locks: &LockManager, id: u32) -> Result<bool, LockError> {
    Ok(is_held(locks, &format!("cart:{id}")).await)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_the_next_call_and_then_given_back() {
    let locks = LockManager::in_memory();
    for _ in 0..3 {
        assert!(keeps(&locks, 17).await.unwrap());
        assert!(locks.inspect("cart:17").await.unwrap().kept);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!is_held(&locks, "cart:17").await);
}
