//! Plain semaphores: permits without a holder.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acquire::attempt::Attempt;
use crate::acquire::counter::{reach_front, until_done};
use crate::acquire::try_acquire::TryAcquire;
use crate::api::request::LockRequest;
use crate::api::semaphore::Semaphore;
use crate::backend::kit::undo::Undo;
use crate::backend::{CounterKind, Fault, Reply};
use crate::hold::{Asking, Core};
use crate::observe::metrics::logged;
use crate::values::options::check_permits;
use crate::values::{Key, LockError, LockName};

/// The time for which permits of a caller who left are given back again and again, while the store says that this was not
/// done. A failover takes less.
const GIVE_BACK: Duration = Duration::from_secs(60);

/// A semaphore whose permits have no holder and no lease: Redisson's `RSemaphore`, to share one with Java.
/// [`LockManager::plain_semaphore`](crate::LockManager::plain_semaphore) makes it; it is cheap to clone.
///
/// **A crashed process's permits are gone**: nobody knows that it had them, and somebody has to
/// [add](PlainSemaphore::add_permits) them again. Nor does a shutdown know of them: permits can be given back until it
/// is done, but it does not wait for them. For new code use [`Semaphore`], whose permits are leased.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let licences = locks.plain_semaphore("licences");
/// licences.try_set_permits(5).await?;
/// licences.permits(2).acquire().await?;
/// assert_eq!(licences.available().await?, 3);
/// licences.release(2).await?; // nobody else gives them back
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a semaphore by its name takes nothing: acquire some of its `permits(n)`"]
pub struct PlainSemaphore {
    /// The operations that both kinds of semaphores have.
    both: Semaphore,
}

impl PlainSemaphore {
    pub(crate) fn new(core: Arc<Core>, name: LockName) -> PlainSemaphore {
        let both = Semaphore::new(core, name);
        PlainSemaphore { both }
    }

    /// Does the same as [`Semaphore::try_set_permits`].
    ///
    /// # Errors
    /// The same as [`Semaphore::try_set_permits`].
    ///
    /// # Cancel safety
    /// The same as [`Semaphore::try_set_permits`].
    pub async fn try_set_permits(&self, permits: u64) -> Result<bool, LockError> {
        self.both.try_set_permits(permits).await
    }

    /// Does the same as [`Semaphore::available`]. It counts leased permits whose lease is over. On Redis, only the next
    /// request for leased permits takes those back: until then, plain requests do not get them.
    ///
    /// # Errors
    /// The same as [`Semaphore::available`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn available(&self) -> Result<i64, LockError> {
        self.both.available().await
    }

    /// Does the same as [`Semaphore::add_permits`].
    ///
    /// # Errors
    /// The same as [`Semaphore::add_permits`].
    ///
    /// # Cancel safety
    /// The same as [`Semaphore::add_permits`].
    pub async fn add_permits(&self, permits: i64) -> Result<(), LockError> {
        self.both.add_permits(permits).await
    }

    /// Does the same as [`Semaphore::delete`].
    ///
    /// # Errors
    /// The same as [`Semaphore::delete`].
    ///
    /// # Cancel safety
    /// The same as [`Semaphore::delete`].
    pub async fn delete(&self) -> Result<bool, LockError> {
        self.both.delete().await
    }

    /// Returns a request for `permits` permits, 1 to 1,000, all or none. Callers of one process are served in the order
    /// in which they asked.
    pub fn permits(&self, permits: u32) -> PlainSemaphoreRequest {
        PlainSemaphoreRequest {
            both: self.both.clone(),
            request: self.both.permits(permits),
        }
    }

    /// Gives `permits` permits back, 1 to 1,000. The caller must have them: nobody checks.
    ///
    /// # Errors
    /// The same as [`Semaphore::add_permits`]: after [`LockError::Unavailable`] they may have been given back or not.
    ///
    /// # Cancel safety
    /// Dropping the future may leave it done or not done.
    pub async fn release(&self, permits: u32) -> Result<(), LockError> {
        check_permits(permits)?;
        self.add_permits(i64::from(permits)).await
    }
}

/// A request for permits without a holder, made by [`PlainSemaphore::permits`]. It is sent by
/// [`acquire`](PlainSemaphoreRequest::acquire) or [`try_acquire`](PlainSemaphoreRequest::try_acquire).
///
/// See the example of [`PlainSemaphore`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct PlainSemaphoreRequest {
    both: Semaphore,
    /// What it asks for, and for how long.
    request: LockRequest,
}

impl PlainSemaphoreRequest {
    /// Waits up to `wait` for the permits; zero tries once. If a request to the store is under way when that is over,
    /// waits for its answer, up to 200 ms after the request. Default: the manager's, 10 s. One year at most.
    pub fn wait(mut self, wait: Duration) -> PlainSemaphoreRequest {
        self.request = self.request.wait(wait);
        self
    }

    /// Waits for the permits for as long as it takes.
    pub fn wait_forever(mut self) -> PlainSemaphoreRequest {
        self.request = self.request.wait_forever();
        self
    }

    /// Takes the permits if they are free now: `TryAcquire::Acquired(())`.
    ///
    /// # Errors
    /// The same as [`acquire`](PlainSemaphoreRequest::acquire), but permits that are not free are [`TryAcquire::Busy`].
    ///
    /// # Cancel safety
    /// The same as [`acquire`](PlainSemaphoreRequest::acquire).
    pub async fn try_acquire(self) -> Result<TryAcquire<()>, LockError> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(()) => Ok(TryAcquire::Acquired(())),
            Err(LockError::Busy { retry_after, .. }) => Ok(TryAcquire::Busy { retry_after }),
            Err(error) => Err(error),
        }
    }

    /// Takes the permits within the wait. Only [`PlainSemaphore::release`] gives them back.
    ///
    /// # Errors
    /// [`LockError::Busy`]; [`LockError::InvalidConfig`] for 0 permits or more than 1,000; [`LockError::NotSet`] if
    /// none were ever set; [`LockError::Unavailable`] if the store did not answer: then **nobody knows whether the
    /// permits were taken**, and it is not tried again; [`LockError::TooManyWaiters`]; the others as
    /// [`Semaphore::try_set_permits`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, and gives back what the store says it has granted. If the store's answer
    /// is lost as well, they stay taken. Keeping the future without polling it may keep permits from others for as
    /// long: they have no lease that could end.
    pub async fn acquire(self) -> Result<(), LockError> {
        let PlainSemaphoreRequest { both, request } = self;
        let counter = both.counter().await?.if_open()?;
        let (core, request) = request.into_checked()?;
        let attempt = Attempt::new(core, request);
        let permits = attempt.request.hold_options.permits;
        let Some(front) = reach_front(&attempt).await? else {
            // Only readers and the waiters of a latch go together.
            return Err(attempt.busy(None));
        };
        let ask = |timeout: Duration| -> Reply<'_, bool> {
            Box::pin(take(
                both.core.clone(),
                counter.key.clone(),
                permits,
                timeout,
            ))
        };
        let until = counter.until(&attempt, Some(&front), ask, Fault::is_passing_no_op);
        until.await
    }
}

/// Gives back permits that were granted to a caller that has left.
fn give_back(core: Arc<Core>, key: Arc<Key>, permits: u32) {
    let life = core.life.clone();
    life.spawn(async move {
        let timeout = core.options.call_timeout;
        let Some(counters) = core.backend.counters() else {
            return;
        };
        let (core, key) = (&core, &key);
        let add = |timeout| -> Reply<'_, ()> {
            Box::pin(async move {
                let added = counters.add(key, i64::from(permits), timeout).await;
                let asking = Asking::Count(CounterKind::Semaphore);
                core.served.judge(asking, added)
            })
        };
        if let Err(fault) = until_done(GIVE_BACK, timeout, add).await {
            logged!(warn, %fault, permits, "plain permits of a caller who left were not given back");
        }
    });
}

/// Asks for the permits once. The manager drives the call, so that no permits are lost if the caller leaves meanwhile.
async fn take(
    core: Arc<Core>,
    key: Arc<Key>,
    permits: u32,
    timeout: Duration,
) -> Result<bool, Fault> {
    let (tell, told) = oneshot::channel();
    let asked = core.clone();
    core.life.spawn(async move {
        let Some(counters) = asked.backend.counters() else {
            return;
        };
        let taken = counters.take(&key, permits, timeout).await;
        let unseen = || Undo::armed(move || give_back(asked, key, permits));
        let granted = taken.map(|taken| taken.then(unseen));
        // If nobody waits any more, the grant is dropped with the channel, which gives the permits back.
        let _ = tell.send(granted);
    });
    // A grant after this time is given back, too: nobody waits for it.
    match Fault::if_driven(timeout, told).await? {
        Ok(Ok(Some(granted))) => {
            granted.disarm();
            Ok(true)
        }
        Ok(Ok(None)) => Ok(false),
        Ok(Err(fault)) => Err(fault),
        Err(_) => Err(Fault::runtime_ended()),
    }
}
