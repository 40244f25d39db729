//! Tests of what `#[distributed_lock]` does around a body, drawn from the design's promises for the attribute, on the
//! memory store.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_runtime::{FromLockError, Lease, LockError, LockManager, distributed_lock};
use tests::Events;
use tracing::Level;

use crate::witness::{HELD, Witness, is_held};

#[distributed_lock(key = "order:{id}", manager = locks, guard = lease)]
async fn token(locks: &LockManager, id: u64) -> Result<(String, bool), LockError> {
    Ok((
        lease.name().to_owned(),
        lease.is_held() && is_held(locks, lease.name()).await,
    ))
}

#[tokio::test(start_paused = true)]
async fn the_body_runs_under_the_lock_and_it_is_free_afterwards() {
    let locks = LockManager::in_memory();
    assert_eq!(
        token(&locks, 7).await.unwrap(),
        ("order:7".to_owned(), true)
    );
    assert!(!is_held(&locks, "order:7").await);
}

#[distributed_lock(key = "order:{id}", manager = locks)]
async fn arguments(
    locks: &LockManager,
    id: u64,
    _unused: Witness,
    _: Witness,
    (used, _): (Witness, Witness),
    mut part: (Witness, u8),
) -> Result<(), LockError> {
    part.1 += 1;
    let _ = (&used.name, part.1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn every_argument_is_dropped_before_the_release_used_or_not() {
    let locks = LockManager::in_memory();
    let (witnesses, seen): (Vec<_>, Vec<_>) =
        (0..5).map(|_| Witness::new(&locks, "order:7")).unzip();
    let [a, b, c, d, e] = witnesses.try_into().ok().unwrap();
    arguments(&locks, 7, a, b, (c, d), (e, 0)).await.unwrap();
    let seen: Vec<u32> = seen
        .iter()
        .map(|seen| seen.load(Ordering::SeqCst))
        .collect();
    assert_eq!(seen, [HELD; 5]);
}

struct Shop {
    locks: LockManager,
    tenant: String,
    _witness: Witness,
}

impl Shop {
    #[distributed_lock(key = "shop:{self.tenant}", manager = self.locks)]
    async fn close(self) -> Result<usize, LockError> {
        Ok(self.tenant.len())
    }
}

#[tokio::test(start_paused = true)]
async fn self_is_dropped_whole_before_the_release() {
    let locks = LockManager::in_memory();
    let (witness, seen) = Witness::new(&locks, "shop:acme");
    let shop = Shop {
        locks: locks.clone(),
        tenant: "acme".into(),
        _witness: witness,
    };
    assert_eq!(shop.close().await.unwrap(), 4);
    assert_eq!(seen.load(Ordering::SeqCst), HELD);
}

#[distributed_lock(key = "depth", manager = locks, wait = "0s", guard = lease)]
async fn nested(locks: &LockManager, depth: u32) -> Result<Vec<String>, LockError> {
    let mut tokens = vec![format!("{:?}", lease.fencing_token())];
    if depth > 0 {
        tokens.extend(Box::pin(nested(locks, depth - 1)).await?);
    }
    Ok(tokens)
}

#[tokio::test(start_paused = true)]
async fn nested_annotated_functions_share_the_hold() {
    let locks = LockManager::in_memory();
    let tokens = nested(&locks, 3).await.unwrap();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert!(!is_held(&locks, "depth").await);
}

#[distributed_lock(key = "busy", manager = locks, wait = "250ms")]
async fn impatient(locks: &LockManager, ran: &AtomicU32) -> Result<(), LockError> {
    ran.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_an_error_after_the_wait_and_runs_no_body() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("busy").acquire().await.unwrap();
    let ran = AtomicU32::new(0);
    let before = tokio::time::Instant::now();
    let error = impatient(&locks, &ran).await.unwrap_err();
    assert!(matches!(error, LockError::Busy { .. }), "{error}");
    assert_eq!(before.elapsed().as_millis() / 10, 25);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    guard.release().await.unwrap();
    impatient(&locks, &ran).await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[async_trait::async_trait]
trait Closing {
    async fn close(&self, witness: Witness) -> Result<bool, LockError>;
}

#[async_trait::async_trait]
impl Closing for LockManager {
    #[distributed_lock(key = "closing", manager = self)]
    async fn close(&self, _witness: Witness) -> Result<bool, LockError> {
        tokio::task::yield_now().await;
        Ok(is_held(self, "closing").await)
    }
}

#[tokio::test(start_paused = true)]
async fn async_trait_methods_run_and_drop_arguments_under_the_lock() {
    let locks = LockManager::in_memory();
    let (witness, seen) = Witness::new(&locks, "closing");
    let closing: &dyn Closing = &locks;
    assert!(closing.close(witness).await.unwrap());
    assert_eq!(seen.load(Ordering::SeqCst), HELD);
    assert!(!is_held(&locks, "closing").await);
}

struct Reply(&'static str);

impl FromLockError for Reply {
    fn from_lock_error(error: LockError) -> Reply {
        Reply(if error.is_retryable() {
            "try later"
        } else {
            "broken"
        })
    }
}

#[distributed_lock(key = "busy", manager = locks, wait = "0s")]
async fn reply(locks: &LockManager) -> Reply {
    Reply("done")
}

#[tokio::test(start_paused = true)]
async fn a_return_type_of_ones_own_says_what_it_likes() {
    let locks = LockManager::in_memory();
    assert_eq!(reply(&locks).await.0, "done");
    let _guard = locks.mutex("busy").acquire().await.unwrap();
    assert_eq!(reply(&locks).await.0, "try later");
}

trait Job {
    fn run(&self, lease: &mut Option<Lease>)
    -> impl Future<Output = Result<u64, LockError>> + Send;
}

impl Job for LockManager {
    #[distributed_lock(key = "job", manager = self, guard = lease)]
    async fn run(&self, seen: &mut Option<Lease>) -> Result<u64, LockError> {
        *seen = Some(lease);
        Ok(7)
    }
}

#[distributed_lock(key = "{part}", manager = locks)]
async fn generic<T, F>(locks: &LockManager, part: T, make: F) -> Result<String, LockError>
where
    T: Display + Send,
    F: AsyncFnOnce(T) -> String,
{
    Ok(make(part).await)
}

#[tokio::test(start_paused = true)]
async fn trait_methods_and_generics_are_protected_alike() {
    let locks = LockManager::in_memory();
    let mut lease = None;
    assert_eq!(locks.run(&mut lease).await.unwrap(), 7);
    assert!(!lease.unwrap().is_held());
    let text = generic(&locks, 7, async |part| {
        assert!(is_held(&locks, "7").await);
        format!("<{part}>")
    });
    assert_eq!(text.await.unwrap(), "<7>");
}

#[distributed_lock(key = "local")]
async fn without_manager() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn without_a_manager_the_installed_one_is_used() {
    let error = without_manager().await.unwrap_err();
    assert!(matches!(error, LockError::NotInstalled), "{error}");
    let locks = LockManager::in_memory();
    locks.as_global(without_manager()).await.unwrap();
    assert!(locks.install_global().is_none());
    without_manager().await.unwrap();
    // A second manager takes the place of the installed one. That of the nearest `as_global` around a future goes
    // before both.
    let other = LockManager::in_memory();
    let events = Events::default();
    let log = tracing::subscriber::set_default(events.clone());
    let replaced = other.install_global().unwrap();
    assert_eq!(replaced.id(), locks.id());
    assert!(other.install_global().is_some(), "the same one again");
    drop(log);
    let [warning] = &events.of(Level::WARN)[..] else {
        panic!("not one warning: {:?}", events.of(Level::WARN));
    };
    for id in [other.id(), locks.id()] {
        assert!(warning.contains(&id), "{id} in {warning}");
    }
    let _held = other.mutex("local").acquire().await.unwrap();
    assert!(
        LockManager::global()
            .unwrap()
            .inspect("local")
            .await
            .unwrap()
            .held
    );
    locks.as_global(without_manager()).await.unwrap();
}

#[distributed_lock(key = "contended", manager = locks)]
async fn contended(locks: &LockManager, inside: &AtomicU32) -> Result<(), LockError> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
    tokio::task::yield_now().await;
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_from_many_tasks_take_turns() {
    let locks = LockManager::in_memory();
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (locks, inside) = (locks.clone(), inside.clone());
        tasks.spawn(async move { contended(&locks, &inside).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap().unwrap();
    }
}

/// Keeps `N` bytes across an `.await`.
async fn body<const N: usize>() -> Result<[u8; 200], LockError> {
    let buffer = [1; N];
    tokio::task::yield_now().await;
    Ok([buffer.iter().copied().fold(0, u8::wrapping_add); 200])
}

#[distributed_lock(key = "size")]
async fn small() -> Result<[u8; 200], LockError> {
    body::<8>().await
}

#[distributed_lock(key = "size")]
async fn large() -> Result<[u8; 200], LockError> {
    body::<4096>().await
}

#[distributed_lock(key = "size")]
async fn with_argument(argument: [u8; 200]) -> Result<[u8; 200], LockError> {
    body::<4096>().await?;
    Ok(argument)
}

/// Checks the figures in the attribute's manual.
#[test]
fn the_future_stays_small() {
    let (plain, protected) = (size_of_val(&body::<4096>()), size_of_val(&large()));
    println!("plain {plain} bytes, protected {protected} bytes");
    // The future has no second place for the body, and none for its value.
    assert!(protected <= plain + 490, "{protected}");

    // Asking for the lock and running the body use one place, one after the other.
    let (waiting, protected) = (
        size_of_val(&LockManager::in_memory().mutex("size").acquire()),
        size_of_val(&small()),
    );
    println!("waiting {waiting} bytes, protected {protected} bytes");
    assert!(protected <= waiting + 160, "{protected}");
    assert!(protected <= 1_640, "{protected}");

    // An argument takes its size four times, as in two nested `async fn`s, each of which has it twice.
    let protected = size_of_val(&with_argument([0; 200]));
    assert!(
        protected <= size_of_val(&large()) + 4 * 200 + 16,
        "{protected}"
    );
}
