//! The manager, which makes all requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::api::clients::Clients;
use crate::api::ids::Ids;
use crate::api::info::LockInfo;
use crate::api::latch::Latch;
use crate::api::multi::MultiRequest;
use crate::api::plain_semaphore::PlainSemaphore;
use crate::api::request::LockRequest;
use crate::api::semaphore::Semaphore;
use crate::backend::{Backend, EventSink, Fault};
use crate::hold::{Asking, Core, current_runtime};
use crate::observe::metrics;
use crate::observe::metrics::logged;
use crate::release::idle;
use crate::renew::Watch;
use crate::values::{
    ClientRecord, HolderIds, IntoLockName, Key, Kind, LockError, LockName, LostReason, Options,
    clock,
};

/// The time for which a shutdown waits for releases under way.
const DRAIN: Duration = Duration::from_secs(2);
/// The time for which it waits for callers that hold a guard to react to its loss.
const REACTION: Duration = Duration::from_millis(250);

/// A manager, which makes lock requests and owns everything that they share: the connection, the watchdog, the local
/// queues.
///
/// It is cheap to clone; clones are the same manager. Use one per process and store: local waiters then share one queue
/// per key. When the last clone and the last guard are gone, connections and tasks end. A key that `min_hold` keeps taken
/// counts as a guard until then.
///
/// Its background work belongs to the tokio runtime in which it was built. When that runtime is gone, calls return
/// [`LockError::ShuttingDown`] and holds are lost, because nobody renews them any more; the store keeps them to the end
/// of their leases.
///
/// `Debug` shows counts only, no matter how many locks are held.
#[derive(Clone)]
pub struct LockManager {
    core: Arc<Core>,
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl LockManager {
    pub(crate) fn assemble(
        options: Options,
        backend: Arc<dyn Backend>,
        watch: Arc<Watch>,
        ids: Arc<HolderIds>,
    ) -> LockManager {
        let core = Core::new(backend, options, watch, ids);
        metrics::describe();
        // Outside of a runtime this fails, and the first call starts the background work.
        let _ = core.start_here();
        let locks = LockManager { core };
        let ClientRecord { app, host, .. } = &locks.core.presence.record;
        logged!(
            info,
            id = locks.id(),
            app,
            host,
            store = locks.core.backend.store().name(),
            "lock manager begins"
        );
        locks
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns a request for the exclusive, reentrant lock of that name.
    #[doc(alias("getLock", "RLock", "lock"))]
    pub fn mutex(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.core.clone(), name.into_lock_name(), Kind::Mutex)
    }

    /// Returns a request for the exclusive, reentrant lock of that name, whose fencing tokens are Redisson's: a counter
    /// of its own for each name, which a Java service's `RFencedLock` shares. A [`mutex`](LockManager::mutex) of that
    /// name, taken elsewhere, excludes this one too, but does not raise its counter: use one kind for a name
    /// everywhere.
    ///
    /// The counter has no expiry and starts again at 1 if the store loses it, and its numbers have gaps; prefer `mutex`,
    /// whose tokens are clocked, if no Java service reads them.
    #[doc(alias("getFencedLock", "RFencedLock"))]
    pub fn fenced(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.core.clone(), name.into_lock_name(), Kind::Fenced)
    }

    /// Returns a request for several locks as one: all of them or none, without deadlock if it is made under no other
    /// lock. The members may be of any kind and of any manager.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let (from, to) = (17, 4);
    /// let accounts = [from, to].map(|id| locks.mutex(format!("account:{id}")));
    /// let guard = locks.multi(accounts).acquire().await?;
    /// for account in guard.members() {
    ///     println!("{} with token {:?}", account.name, account.fencing_token);
    /// }
    /// guard.release().await
    /// # }
    /// ```
    #[doc(alias("getMultiLock", "RedissonMultiLock"))]
    pub fn multi(&self, members: impl IntoIterator<Item = LockRequest>) -> MultiRequest {
        MultiRequest::new(members.into_iter().collect())
    }

    /// Returns the semaphore of that name, whose permits are leased to their holders: see [`Semaphore`].
    #[doc(alias("getPermitExpirableSemaphore", "RPermitExpirableSemaphore"))]
    pub fn semaphore(&self, name: impl IntoLockName) -> Semaphore {
        Semaphore::new(self.core.clone(), name.into_lock_name())
    }

    /// Returns a request for the exclusive, reentrant lock of that name, which serves its waiters in the order in which
    /// they asked the store, no matter in which process they are. It is Redisson's `RFairLock`: use one kind for a name
    /// everywhere.
    ///
    /// Each waiter has its own place in a queue in the store, and asks again every 1.6 s at the latest to keep it: the
    /// place of a waiter that was killed is passed over after 5 s. A fair lock is not handed over inside a process, so
    /// each change of hands costs a message and a round trip; prefer [`mutex`](LockManager::mutex) where order between
    /// processes does not matter. [`try_acquire`](LockRequest::try_acquire) does not queue, and is refused while other
    /// callers do.
    #[doc(alias("getFairLock", "RFairLock"))]
    pub fn fair(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.core.clone(), name.into_lock_name(), Kind::Fair)
    }

    /// Returns a request for the shared side of the read/write lock of that name: any number of readers hold it
    /// together, and no writer beside them. It is Redisson's `RReadWriteLock`.
    ///
    /// A read hold has no fencing token. While a writer of this library waits, further readers of this library queue
    /// after it, so that a stream of readers does not keep it out: ask for a second read in the call chain of the
    /// first ([`run`](LockRequest::run), [`scope`](crate::LockGuard::scope)), where it is a re-entry and never waits
    /// for a writer. Nested in a write hold, a read shares that hold and shows its token; if it outlives the write,
    /// the hold is downgraded, and the token is gone.
    #[doc(alias("getReadWriteLock", "RReadWriteLock", "rwlock", "readLock"))]
    pub fn read(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.core.clone(), name.into_lock_name(), Kind::Read)
    }

    /// Returns a request for the exclusive side of the read/write lock of that name. It is reentrant and has a fencing
    /// token, like [`mutex`](LockManager::mutex), and no reader holds the lock beside it.
    ///
    /// It waits for the readers that hold the lock, not for those that come later: while it waits, no further reader of
    /// this library is admitted. Readers of other clients are. Nested in a read hold of the same lock it is refused
    /// at once ([`LockError::Upgrade`]): ask for the write first, and for the read inside it.
    #[doc(alias("getReadWriteLock", "RReadWriteLock", "rwlock", "writeLock"))]
    pub fn write(&self, name: impl IntoLockName) -> LockRequest {
        LockRequest::new(self.core.clone(), name.into_lock_name(), Kind::Write)
    }

    /// Returns the semaphore of that name, whose permits have no holder: see [`PlainSemaphore`], and prefer
    /// [`semaphore`](LockManager::semaphore).
    #[doc(alias("getSemaphore", "RSemaphore"))]
    pub fn plain_semaphore(&self, name: impl IntoLockName) -> PlainSemaphore {
        PlainSemaphore::new(self.core.clone(), name.into_lock_name())
    }

    /// Returns the count-down latch of that name: see [`Latch`].
    #[doc(alias("getCountDownLatch", "RCountDownLatch"))]
    pub fn latch(&self, name: impl IntoLockName) -> Latch {
        Latch::new(self.core.clone(), name.into_lock_name())
    }

    /// Returns the source of ids of that name: see [`Ids`].
    #[doc(alias("getIdGenerator", "RIdGenerator", "sequence", "snowflake"))]
    pub fn ids(&self, name: impl IntoLockName) -> Ids {
        Ids::new(self.core.clone(), &name.into_lock_name())
    }

    /// Asks the store who holds the lock, or how many permits of a semaphore are leased, within the call timeout. Then it
    /// asks which app and host the holder is, and the first waiters of a fair lock: see
    /// [`HolderInfo`](crate::HolderInfo). Anything about them that is not answered within that time remains unknown.
    ///
    /// # Errors
    /// [`LockError::InvalidName`], [`LockError::ForeignKey`], [`LockError::Unavailable`], [`LockError::Denied`],
    /// [`LockError::ShuttingDown`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    #[doc(alias("isLocked", "is_locked"))]
    pub async fn inspect(&self, name: impl IntoLockName) -> Result<LockInfo, LockError> {
        let key = self.key(&name.into_lock_name()).await?;
        let seen = self.look(&key).await;
        seen.map_err(|fault| fault.into_error(key.name()))
    }

    /// Does the same as [`inspect`](LockManager::inspect), and returns the fault, for callers that look again.
    pub(crate) async fn look(&self, key: &Key) -> Result<LockInfo, Fault> {
        let timeout = self.core.options.call_timeout;
        let deadline = clock::now() + timeout;
        let seen = self.core.backend.inspect(key, timeout).await;
        let seen = self.core.served.judge(Asking::Look, seen)?;
        let clients = Clients::of(&self.core, seen.as_ref(), deadline).await;
        Ok(LockInfo::new(seen, &clients, self.core.queues.waiters(key)))
    }

    /// Makes this manager another holder than it was, for the hook that runs when a process has been restored from a snapshot
    /// (Lambda SnapStart, CRIU, a virtual machine). Call it before anything else.
    ///
    /// Each copy of the process believes that it holds what the manager held at the time of the snapshot. So all of it
    /// is lost ([`LostReason::Refused`]), and nothing is given back: a copy may be at work, and the leases end by
    /// themselves. Requests that wait go on as other holders.
    ///
    /// Without this call, copies are different holders in all that they acquire after their first new connection to the
    /// store. Only what was held at the time of the snapshot would be held by each of them.
    /// [Not guaranteed](crate::_documentation::guarantees#not-guaranteed) says more.
    #[doc(alias("snapshot", "restore", "clone", "CRIU", "SnapStart"))]
    pub fn renew_identity(&self) {
        self.core.ids.leave_to_copies();
        self.core.watch.lose_all(LostReason::Refused);
    }

    /// Takes the lock away from its holder, and wakes a waiter, within the call timeout. Returns true if it was held.
    ///
    /// A holder that uses this library is notified at once ([`LostReason::ForceReleased`]), in any namespace. It
    /// notices at its next renewal ([`LostReason::Refused`]) if that is faster than the message, or if the subscription
    /// is down at the time. Readers beyond about 330 and the clients of other libraries always notice in this way. Each
    /// may act on the lock until then: that is what force means.
    ///
    /// For a semaphore, every leased permit is given back; the result is true if there was one. Plain permits and a
    /// latch have no holder to take them from: the result is false, and nothing is changed.
    ///
    /// # Errors
    /// The same as [`inspect`](LockManager::inspect). After [`LockError::Unavailable`] it may have happened or not, or
    /// to some of many permits.
    ///
    /// # Cancel safety
    /// Dropping the future may leave it done or not done.
    #[doc(alias("forceUnlock", "force_unlock"))]
    pub async fn force_release(&self, name: impl IntoLockName) -> Result<bool, LockError> {
        let key = self.key(&name.into_lock_name()).await?;
        let timeout = self.core.options.call_timeout;
        let released = self.core.backend.force_release(&key, timeout).await;
        released.map_err(|fault| fault.into_error(key.name()))
    }

    /// The key of a request that an operator or an observer makes.
    pub(crate) async fn key(&self, name: &LockName) -> Result<Key, LockError> {
        coop::consume_budget().await;
        let key = self.core.key(name, Kind::Mutex)?;
        self.core.start_here()?;
        self.core.life.check_open(&key)?;
        Ok(key)
    }

    /// Ends the manager in order: it admits nobody and sends waiters away ([`LockError::ShuttingDown`]); notifies the
    /// holders ([`Lease::closing`](crate::Lease::closing)); lets holds end by themselves for the grace period, renewing
    /// them; then ends the rest as lost ([`LostReason::Shutdown`]), which drops protected bodies; waits up to 2 s for
    /// these and for the releases under way; and stops the watchdog.
    ///
    /// A guard that a caller holds by hand is lost after the grace period, too, but only its owner can drop it. The
    /// shutdown gives the owner 250 ms to react to [`lost`](crate::LockGuard::lost) and then waits no longer. A guard
    /// that is dropped later still gives its key back in the background while the runtime lives. If a guard is not
    /// dropped, its key ends with its lease.
    ///
    /// It does not wait for plain permits that are out, because they have no holder. Until it is done, they can be
    /// given back and latches counted down.
    ///
    /// A lock that could not be given back by then ends with its lease. Calling it again, or from two places, is fine.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future stops the shutdown where it is; calling it again goes on.
    pub async fn shutdown(&self) {
        if let Err(error) = current_runtime() {
            panic!("{error}");
        }
        let core = &self.core;
        if core.life.is_stopped() {
            return;
        }
        core.life.close();
        core.queues.close();
        idle::give_back_all(core);
        let grace = core.options.shutdown_grace;
        let in_time = tokio::time::timeout(grace, core.life.holds_ended()).await;
        let mut over_at = None;
        if in_time.is_err() {
            over_at = core.watch.lose_all(LostReason::Shutdown);
        }
        let drain_until = clock::now() + DRAIN;
        let drained = async {
            let _ = tokio::time::timeout(REACTION, core.life.in_hand.zero()).await;
            core.life.idle().await;
            core.backend.drained().await;
            core.presence.leave().await;
        };
        let _ = tokio::time::timeout_at(drain_until.tick(), drained).await;
        core.life.stop();
        if core.life.in_hand.count() == 0 {
            core.backend.close();
            return;
        }
        // Guards that are dropped later are given back while their leases last.
        let over_at = over_at.unwrap_or_else(|| clock::now() + core.options.lease);
        let core = core.clone();
        self.core.life.spawn_uncounted(async move {
            let settled = async {
                core.life.holds_ended().await;
                core.life.idle().await;
                core.backend.drained().await;
            };
            let _ = tokio::time::timeout_at(over_at.tick(), settled).await;
            core.backend.close();
        });
    }
}

/// Returns the receiver of a backend's events. It is weak, so that a backend's tasks do not keep the holds alive.
pub(crate) fn events_of(watch: &Arc<Watch>) -> EventSink {
    let watch = Arc::downgrade(watch);
    Arc::new(move |event| {
        if let Some(watch) = watch.upgrade() {
            watch.hear(event);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl LockManager {
        pub(crate) fn build(
            options: Options,
            backend: impl FnOnce(EventSink) -> Arc<dyn Backend>,
        ) -> LockManager {
            let watch = Arc::new(Watch::default());
            let backend = backend(events_of(&watch));
            LockManager::assemble(options, backend, watch, Arc::default())
        }
    }

    #[tokio::test]
    async fn debug_output_of_a_manager_is_short_and_names_no_key() {
        let builder = LockManager::builder().namespace("secret:".repeat(30));
        let locks = builder.in_memory().unwrap();
        let mut guards = Vec::new();
        for key in 0..10_000 {
            let request = locks.mutex(format!("secret:{key}"));
            guards.push(request.acquire().await.unwrap());
        }
        let waiters: Vec<_> = (0..100)
            .map(|_| tokio::spawn(locks.mutex("secret:1").acquire()))
            .collect();
        while locks.core.queues.waiting() < waiters.len() {
            tokio::task::yield_now().await;
        }
        let shown = format!("{locks:?}");
        assert!(shown.len() < 200, "{} bytes: {shown}", shown.len());
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("holds: 10000") && shown.contains("waiters: 100"));
        let request = format!("{:?}", locks.mutex("a"));
        assert!(request.len() < 1_000, "{request}");
        drop((guards, waiters));
    }
}
