//! A request for a lock: what to take, how long to wait, how long to hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire;
use crate::acquire::checked_request::CheckedRequest;
use crate::acquire::try_acquire::TryAcquire;
use crate::api::guard::LockGuard;
use crate::api::lease::Lease;
use crate::api::run::Run;
use crate::hold::{Caller, Core, Handles};
use crate::protect::Outcome;
use crate::values::options::{check_in_all, check_permits, check_wait};
use crate::values::{Kind, LockError, LockName, Overrides};

/// A request for a lock, exclusive and reentrant, made by [`LockManager::mutex`](crate::LockManager::mutex), or for
/// permits of a semaphore, made by [`Semaphore::permits`](crate::Semaphore::permits), which never re-enters. It is sent
/// by [`acquire`](LockRequest::acquire), [`try_acquire`](LockRequest::try_acquire) or [`run`](LockRequest::run).
///
/// ```
/// use std::time::Duration;
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let request = locks.mutex("report").wait(Duration::from_secs(5)).lease(Duration::from_secs(20));
///
/// // By hand, or around a body, which is dropped if the lock is lost.
/// request.clone().acquire().await?.release().await?;
/// let pages = request.run(async |_lease| 12).await?;
/// assert_eq!(pages, 12);
/// # Ok(())
/// # }
/// ```
///
/// # Re-entry
/// A request re-enters when an *ancestor* in the same call chain holds the same lock: it was made inside
/// [`run`](LockRequest::run), an annotated function, or [`scope`](LockGuard::scope), in the same task. A re-entry is
/// local, shares the hold, and may lengthen the lease but never shorten it; the outer `max_hold` wins. Two nested
/// requests of one hold take turns. A guard taken by hand is an ancestor only inside its `scope`: asking for the same
/// lock beside it waits for it. The chain is captured when the method is called: a future that was made outside of a
/// hold counts as outside, even if it is polled inside.
///
/// A body may move to another task, for example by `spawn` after a `timeout(&mut future)`: its requests re-enter
/// there. A request that leaves the body for another task does not, nor does one that stays behind. Outside of tasks,
/// as in `block_on`, the thread decides instead of the task.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct LockRequest {
    core: Arc<Core>,
    name: LockName,
    kind: Kind,
    reentrant: bool,
    pub(super) permits: u32,
    /// The number that a semaphore is given if none were set.
    pub(super) in_all: Option<u64>,
    pub(super) overrides: Overrides,
}

/// The options of a request, for those who pass them on to it.
macro_rules! request_options {
    ($pass_on:ident) => {
        $pass_on! {
            lease(lease: Duration),
            auto_renew(on: bool),
            min_hold(least: Duration),
            max_hold(longest: Duration),
            keep_for(idle: Duration),
            reentrant(on: bool),
            label(label: &'static str)
        }
    };
}
pub(super) use request_options;

impl LockRequest {
    pub(crate) fn new(core: Arc<Core>, name: LockName, kind: Kind) -> LockRequest {
        let label = name.label();
        LockRequest {
            core,
            name,
            kind,
            reentrant: true,
            permits: 1,
            in_all: None,
            overrides: Overrides {
                label,
                ..Overrides::default()
            },
        }
    }

    pub(crate) fn with(mut self, overrides: Overrides) -> LockRequest {
        let label = overrides.label.or(self.overrides.label);
        self.overrides = Overrides { label, ..overrides };
        self
    }

    /// Marks the lock as that of a leader.
    pub(super) fn leads(mut self) -> LockRequest {
        self.overrides.leads = true;
        self
    }

    /// Waits up to `wait` for the lock, one year at most; zero tries once. Default: the manager's, 10 s.
    #[doc(alias("timeout", "waitTime"))]
    pub fn wait(mut self, wait: Duration) -> LockRequest {
        self.overrides.wait = Some(Some(wait));
        self
    }

    /// Waits for the lock for as long as it takes.
    pub fn wait_forever(mut self) -> LockRequest {
        self.overrides.wait = Some(None);
        self
    }

    /// Sets the lease, which is the TTL of the key: 50 ms to 24 h, from 1 s up if renewed. Default: the manager's,
    /// 30 s.
    #[doc(alias("ttl", "expiration", "leaseTime"))]
    pub fn lease(mut self, lease: Duration) -> LockRequest {
        self.overrides.lease = Some(lease);
        self
    }

    /// Sets whether the hold is renewed while it lives. Default true. With `false` the lease is fixed, as in Redisson's
    /// `tryLock(wait, lease)`: when it is over, the hold is lost and a protected body is cancelled.
    #[doc(alias("watchdog", "extend"))]
    pub fn auto_renew(mut self, on: bool) -> LockRequest {
        self.overrides.auto_renew = Some(on);
        self
    }

    /// Keeps the key taken for `least` from the grant on, even if the hold ends before: 50 ms to 24 h. Default: the lock is
    /// given back when the hold ends. It is for work that must not be repeated too early: a job that runs once per tick on
    /// hosts whose clocks differ, or calls that an API admits once a second.
    ///
    /// The release tells the store to keep the key for the rest of the time, so the process may end. A shutdown does not wait
    /// for it. If the process crashes inside the hold, the key is free when its lease is over, because the work was not
    /// done. A hold that is lost keeps nothing, and a nested request leaves it to the outer one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockManager, TryAcquire};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = LockManager::in_memory();
    /// let tick = || locks.mutex("report:17:05").min_hold(Duration::from_secs(50));
    /// tick().run(async |_| "the report is sent").await?;
    /// // A host whose clock is late does not send it again.
    /// assert!(matches!(tick().try_acquire().await?, TryAcquire::Busy { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_hold(mut self, least: Duration) -> LockRequest {
        self.overrides.min_hold = Some(least);
        self
    }

    /// Ends the hold after `longest`, from 50 ms up, renewed or not:
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold). Default: none. A nested request limits nothing: the hold is that
    /// of the outer one.
    pub fn max_hold(mut self, longest: Duration) -> LockRequest {
        self.overrides.max_hold = Some(longest);
        self
    }

    /// Keeps the lock in this process for `idle` after the hold, 50 ms to 24 h, and renews it. If one of the process's
    /// callers asks for the lock meanwhile, it gets the lock without a request to the store. Default: the lock is given
    /// back at once. It is for locks that nearly always the same process wants: of actors, of shards, of the owner of
    /// an entity.
    ///
    /// A process that uses this library and asks for the lock, also by [`try_acquire`](LockRequest::try_acquire), gets
    /// it at once: the store tells the keeper, which gives it up. If the lock is in use then, it is given back after
    /// that hold. Other clients, such as Redisson's, wait until it is given back: after `keep_for` without a hold.
    /// While holds follow one another, it is given back once per `keep_for`, and left alone for a hundredth of that
    /// time: 1 ms to 10 ms, or four round trips if they take longer. A client that listens or polls gets it then. A
    /// caller of this process that comes in that pause waits for its end; a caller that does not wait finds the lock
    /// busy.
    ///
    /// A crash of the process while it keeps the lock costs others the lease, as in a hold. A shutdown gives back the
    /// locks that are kept, and so does the end of the last manager and guard. The next hold of the process has a
    /// fencing token of its own. If it asks for another lease, or for a lease that is not renewed, it goes through the
    /// store.
    ///
    /// It works for [`mutex`](crate::LockManager::mutex) and [`fenced`](crate::LockManager::fenced), on Redis and in
    /// memory. The numbers of `fenced` then have gaps, of 100 at most.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = LockManager::in_memory();
    /// let cart = || locks.mutex("cart:17").keep_for(Duration::from_secs(5));
    /// cart().acquire().await?.release().await?;
    /// assert!(locks.inspect("cart:17").await?.kept);
    /// let guard = cart().acquire().await?; // without a request
    /// assert!(guard.is_held());
    /// # guard.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// The request ends with [`LockError::InvalidConfig`], before any I/O, if it is of another kind or store, of a manager
    /// with [`replicas`](crate::LockManagerBuilder::replicas), or has `auto_renew(false)`.
    pub fn keep_for(mut self, idle: Duration) -> LockRequest {
        self.overrides.keep_for = Some(idle);
        self
    }

    /// Sets whether a request under a hold of the same lock in its own call chain shares that hold. Default true. With
    /// `false` every request contends with all holds, as with a lock of another process: nested in a hold of the same
    /// lock it waits in vain, and is [`LockError::Busy`] when its wait is over. In the store there is no difference.
    pub fn reentrant(mut self, on: bool) -> LockRequest {
        self.reentrant = on;
        self
    }

    /// Sets the name of this lock in logs and metrics. Default: the template of a `key!` name.
    pub fn label(mut self, label: &'static str) -> LockRequest {
        self.overrides.label = Some(label);
        self
    }

    /// Checks everything, before any I/O. Returns the manager's core as well.
    pub(crate) fn into_checked(self) -> Result<(Arc<Core>, CheckedRequest), LockError> {
        let options = &self.core.options;
        self.core.check_kind(self.kind)?;
        let key = self.core.key(&self.name, self.kind)?;
        let mut hold_options =
            self.overrides
                .hold_options(key.name(), options, self.core.backend.store().name())?;
        if hold_options.keep_for.is_some() {
            self.core.check_keeps(self.kind)?;
        }
        // `Fenced` is chosen for its tokens, so it gets them even if the manager gives the other kinds none.
        hold_options.fenced |= self.kind == Kind::Fenced;
        if self.kind == Kind::Semaphore {
            check_permits(self.permits)?;
            hold_options.permits = self.permits;
            // Several callers hold permits at once, so a token would order nobody.
            hold_options.fenced = false;
        }
        // Readers hold together, so no number could tell the later from the earlier.
        hold_options.fenced &= self.kind != Kind::Read;
        let wait = self.overrides.wait.unwrap_or(options.wait);
        check_wait(wait)?;
        let request = CheckedRequest {
            key: Arc::new(key),
            hold_options,
            in_all: self.in_all.map(check_in_all).transpose()?,
            wait,
            min_hold: self.overrides.min_hold.map(Box::new),
            reentrant: self.reentrant && self.kind.is_reentrant(),
        };
        Ok((self.core, request))
    }

    /// Acquires the lock within the wait.
    ///
    /// # Errors
    /// [`LockError::Busy`] if somebody held it for the whole wait, [`LockError::Unavailable`] if the store never
    /// answered, [`LockError::Lost`] if an ancestor's hold of the same lock is lost, or if the lock was lost before this
    /// task was run again; the others say what is wrong, also
    /// that there is no tokio runtime ([`LockError::InvalidConfig`]).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue and gives back what the store may have granted meanwhile. Keeping it
    /// without polling it costs others one lease at most: a lock that it was given meanwhile is not renewed.
    #[doc(alias = "lock")]
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'static {
        acquire_checked(self.into_checked())
    }

    /// Acquires the lock if it is free now: one call to the store, bounded by the call timeout, and none if this
    /// process itself holds the lock, asks for it or is just giving it back (after dropping a guard, for a moment).
    ///
    /// If another process keeps the lock between its holds ([`keep_for`](LockRequest::keep_for)), that process is asked
    /// to give it up, and this waits for it: 20 ms or eight round trips at most, whichever is longer.
    ///
    /// With [`replicas`](crate::LockManagerBuilder::replicas), their confirmation comes on top (`within`, a sixth of the
    /// lease at most), and up to 250 ms for giving back if it fails. On a quorum it is one call to each node. Permits of
    /// a semaphore may first wait for another request of this process, as long again.
    ///
    /// # Errors
    /// The same as [`acquire`](LockRequest::acquire), but a lock that is held is [`TryAcquire::Busy`].
    ///
    /// # Cancel safety
    /// Dropping the future gives back what the store may have granted meanwhile.
    #[doc(alias("try_lock", "tryLock"))]
    pub fn try_acquire(
        self,
    ) -> impl Future<Output = Result<TryAcquire, LockError>> + Send + 'static {
        let caller = Caller::now();
        let request = self.into_checked();
        async move {
            coop::consume_budget().await;
            let (core, request) = request?;
            let tried = acquire::try_acquire(core, request, caller).await?;
            Ok(tried.map(|handle| LockGuard::new(Handles::one(handle))))
        }
    }

    /// Acquires the lock, runs `body` under it, and releases.
    ///
    /// If the hold is lost, the body is dropped at its current `.await` and the error says why. Loss is checked
    /// before every poll of the body. Dropping stops neither spawned tasks nor a statement that was already sent. A
    /// body that completed counts: a release that fails afterwards is logged, not returned.
    ///
    /// # Errors
    /// The same as [`acquire`](LockRequest::acquire), and [`LockError::Lost`] if the body was dropped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body first and then releases in the background.
    #[doc(alias("with_lock", "using"))]
    pub fn run<F, Fut>(self, body: F) -> impl Future<Output = Result<Fut::Output, LockError>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future,
    {
        Run::new(self.acquire(), body, Outcome::into_result)
    }

    /// Does the same as [`run`](LockRequest::run), and returns both the value and the loss, for callers that must know
    /// that the lock was lost although the body had just completed.
    ///
    /// # Errors
    /// The same as [`acquire`](LockRequest::acquire). A loss during the body is in the [`Outcome`].
    ///
    /// # Cancel safety
    /// The same as [`run`](LockRequest::run).
    pub fn run_outcome<F, Fut>(
        self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<Fut::Output>, LockError>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future,
    {
        Run::new(self.acquire(), body, Ok)
    }
}

/// Acquires the lock of a request, unless the request was refused.
pub(super) fn acquire_checked(
    request: Result<(Arc<Core>, CheckedRequest), LockError>,
) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'static {
    let caller = Caller::now();
    async move {
        coop::consume_budget().await;
        let (core, request) = request?;
        let handle = acquire::acquire(core, request, caller).await?;
        Ok(LockGuard::new(Handles::one(handle)))
    }
}
