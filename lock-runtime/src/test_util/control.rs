//! The control by which a test tells its store what to answer.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::backend::ScriptedBackend;
use super::script::Answer;
use super::{assert_free, assert_held};
use crate::api::info::LockInfo;
use crate::api::manager::LockManager;
use crate::backend::Backend;
use crate::values::{IntoLockName, Key, Kind, LostReason};

/// The control over one manager, which says what goes wrong: see [`in_memory`](super::in_memory).
///
/// Clones control the same manager. The manager lives at least as long as they do.
///
/// ```
/// use lock_runtime::{LockError, test_util};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// let (locks, control) = test_util::in_memory();
/// control.go_away();
/// let refused = locks.mutex("report").acquire().await;
/// assert!(matches!(refused, Err(LockError::Unavailable { .. })));
///
/// control.come_back();
/// let guard = locks.mutex("report").acquire().await?;
/// control.assert_held("report").await;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestControl {
    locks: LockManager,
    backend: Arc<ScriptedBackend>,
}

impl fmt::Debug for TestControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestControl")
            .field("away", &self.backend.is_away())
            .field("answers_left", &self.answers_left())
            .finish_non_exhaustive()
    }
}

impl TestControl {
    pub(super) fn new(locks: LockManager, backend: Arc<ScriptedBackend>) -> TestControl {
        TestControl { locks, backend }
    }

    /// Answers the next acquire that asks the store, for any name. Answers queue up: each is for one acquire, in the
    /// order in which they were told.
    ///
    /// A caller that waits for a lock asks the store several times. It gets [`Answer::Busy`] and
    /// [`Answer::Unavailable`] each time, until its wait is over; so do others that ask this manager for the same lock
    /// meanwhile. With `wait_forever` that is until [`forget_answers`](Self::forget_answers).
    ///
    /// A re-entry and a hand-over inside the process ask no store, and take no answer. Nor do plain permits and latches.
    /// Several locks as one take one answer.
    pub fn next_acquire(&self, answer: Answer) {
        self.backend.answers.push(None, answer);
    }

    /// Does the same as [`next_acquire`](Self::next_acquire), for the next acquire of that lock alone.
    ///
    /// # Panics
    /// If the name is invalid.
    #[track_caller]
    pub fn next_acquire_of(&self, name: impl IntoLockName, answer: Answer) {
        let key = self.key(name);
        self.backend.answers.push(Some(key.raw()), answer);
    }

    /// Returns how many answers nobody has had yet. A test that ends with some has not tested what it was to test.
    pub fn answers_left(&self) -> usize {
        self.backend.answers.left()
    }

    /// Takes back the answers that nobody has had yet, and those that callers are still getting.
    pub fn forget_answers(&self) {
        self.backend.answers.forget();
    }

    /// Begins an outage: the store answers nothing that this manager asks, until [`come_back`](Self::come_back). Acquires
    /// and releases fail with [`LockError::Unavailable`](crate::LockError::Unavailable) when their time is over;
    /// renewals stay without an answer, so holds are lost when their leases are over
    /// ([`LostReason::Expired`]). [`LockManager::health`](crate::LockManager::health) says
    /// [`Down`](crate::HealthState::Down).
    pub fn go_away(&self) {
        self.backend.set_away(true);
    }

    /// Ends an outage. The store has kept what it had, as far as leases last.
    pub fn come_back(&self) {
        self.backend.set_away(false);
    }

    /// Ends every hold that this manager has of that lock, for this reason.
    ///
    /// The store's state follows the reason. After [`LostReason::Expired`] and [`LostReason::Refused`] it no longer has
    /// these holds. [`LostReason::ForceReleased`] is a real [`force_release`](LockManager::force_release): the
    /// holds of other managers of the store end as well. After the other reasons, the holder gives the lock back as soon
    /// as it has dropped its guard or its body.
    ///
    /// It works during an outage, too.
    ///
    /// # Panics
    /// If this manager holds no such lock, or the name is invalid. The message names the caller's line.
    #[track_caller]
    pub fn lose<N: IntoLockName>(
        &self,
        name: N,
        reason: LostReason,
    ) -> impl Future<Output = ()> + Send + 'static + use<N> {
        let (key, at, control) = (self.key(name), Location::caller(), self.clone());
        async move {
            let mut holds = control.locks.core().watch.holds();
            holds.retain(|hold| hold.key().raw() == key.raw());
            let name = key.name();
            assert!(
                !holds.is_empty(),
                "lock `{name}` is not held by this manager at {at}: it cannot be lost"
            );
            let (core, store) = (control.locks.core(), &control.backend.beside);
            let timeout = core.options.call_timeout;
            if reason == LostReason::ForceReleased {
                // A memory store always answers.
                let _ = store.force_release(&key, timeout).await;
                return;
            }
            for hold in holds {
                core.watch.lose(hold.tenure(), reason);
                if matches!(reason, LostReason::Expired | LostReason::Refused) {
                    let _ = store.release(hold.tenure().hold_ref(), timeout).await;
                }
            }
        }
    }

    /// Does the same as [`assert_held`] of the manager.
    ///
    /// # Panics
    /// The same as [`assert_held`].
    #[track_caller]
    pub fn assert_held<N: IntoLockName>(
        &self,
        name: N,
    ) -> impl Future<Output = LockInfo> + Send + 'static + use<N> {
        assert_held(&self.locks, name)
    }

    /// Does the same as [`assert_free`] of the manager.
    ///
    /// # Panics
    /// The same as [`assert_free`].
    #[track_caller]
    pub fn assert_free<N: IntoLockName>(
        &self,
        name: N,
    ) -> impl Future<Output = ()> + Send + 'static + use<N> {
        assert_free(&self.locks, name)
    }

    #[track_caller]
    fn key(&self, name: impl IntoLockName) -> Key {
        let key = self.locks.core().key(&name.into_lock_name(), Kind::Mutex);
        match key {
            Ok(key) => key,
            Err(error) => panic!("{error}"),
        }
    }
}
