//! The holds and waiters of this process, without asking the store.

use std::time::Duration;

use crate::api::manager::LockManager;
use crate::values::kind::LockKind;
use crate::values::{FencingToken, StoreKind, clock};

/// The holds and waiters of a manager: see [`LockManager::snapshot`].
///
/// ```
/// use lock_runtime::{LockKind, LockManager, StoreKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("report").acquire().await?;
/// let seen = locks.snapshot();
/// assert_eq!(seen.store, StoreKind::Memory);
/// for hold in &seen.holds {
///     assert_eq!((hold.name.as_str(), hold.kind), ("report", LockKind::Mutex));
///     println!("held for {:?}, {:?} left", hold.held_for, hold.left);
/// }
/// for waited in &seen.waited_for {
///     println!("{} callers wait for {}", waited.callers, waited.name);
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ManagerSnapshot {
    /// The id that [`inspect`](LockManager::inspect) shows for this manager's holders: see [`LockManager::id`].
    pub id: String,
    /// The name that operators see for this process: see [`LockManagerBuilder::app`](crate::LockManagerBuilder::app).
    pub app: String,
    /// The name of this host; empty if it is not known.
    pub host: String,
    /// The store that keeps its locks.
    pub store: StoreKind,
    /// The locks that are held, in the order in which they were asked for: the first one was held longest, or nearly
    /// so.
    pub holds: Vec<HeldLock>,
    /// The locks that callers of this process wait for, in no order.
    pub waited_for: Vec<WaitedLock>,
}

/// A lock that this process holds.
///
/// See the example of [`ManagerSnapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock's name, without the namespace.
    pub name: String,
    /// Its name in logs and metrics: its template or its label.
    pub label: &'static str,
    /// The kind of the lock.
    pub kind: LockKind,
    /// The time for which it has been held.
    pub held_for: Duration,
    /// The time that it lasts if no further renewal is confirmed. Zero if it is lost.
    pub left: Duration,
    /// Its fencing token, if this kind of lock has one.
    pub fencing_token: Option<FencingToken>,
}

/// A lock that callers of this process wait for.
///
/// See the example of [`ManagerSnapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitedLock {
    /// The lock's name, without the namespace.
    pub name: String,
    /// The kind of the lock.
    pub kind: LockKind,
    /// The number of callers that wait.
    pub callers: usize,
}

impl LockManager {
    /// Returns the first eight digits of the id by which the store knows this manager, which
    /// [`inspect`](LockManager::inspect) shows for its holders. The id is drawn anew for each manager. These digits are
    /// logged once, when the manager begins.
    pub fn id(&self) -> String {
        self.core().ids.short()
    }

    /// Returns the locks that this manager holds and waits for, for an operator's page. It does no I/O: the store is
    /// not asked.
    ///
    /// The names are whole: they hold user data, if your templates do. With many holds the call takes a microsecond
    /// each, but blocks no other caller: it looks at the holds in steps, so a hold that ends in between may be missing.
    ///
    /// The feature `serde` makes it serializable.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.mutex("report").acquire().await?;
    /// let seen = locks.snapshot();
    /// assert_eq!(seen.holds[0].name, "report");
    /// assert_eq!(seen.holds[0].fencing_token, guard.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> ManagerSnapshot {
        let core = self.core();
        let now = clock::now();
        let holds = core.watch.holds().into_iter().filter_map(|hold| {
            let (label, granted_at) = hold.with_turn(|turn| (turn.label, turn.granted_at))?;
            Some(HeldLock {
                name: hold.key().name().to_owned(),
                label: label.lock,
                kind: hold.key().kind(),
                held_for: now.since(granted_at),
                left: hold.remaining(),
                fencing_token: hold.token(),
            })
        });
        let waited_for = core
            .queues
            .waited_for()
            .into_iter()
            .map(|(key, callers)| WaitedLock {
                name: key.name().to_owned(),
                kind: key.kind(),
                callers,
            });
        ManagerSnapshot {
            id: self.id(),
            app: core.presence.record.app.clone(),
            host: core.presence.record.host.clone(),
            store: core.backend.store(),
            holds: holds.collect(),
            waited_for: waited_for.collect(),
        }
    }
}
