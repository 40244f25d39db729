//! Leader election: the holder of a mutex is the leader.

use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lease::{Lease, Lost};
use crate::api::manager::LockManager;
use crate::api::observer::LeaderObserver;
use crate::api::request::LockRequest;
use crate::protect::Outcome;
use crate::values::{Backoff, FencingToken, IntoLockName, LockError, LockName, clock};

/// The pauses between campaigns that did not lead to a long term.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

fn pauses() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

impl LockManager {
    /// Returns the leader election of that name. Each process that may lead makes one and
    /// [campaigns](Election::campaign), or hands its work to [`lead`](Election::lead). The holder of the
    /// [`mutex`](LockManager::mutex) of the same name is the leader. A Java service that locks Redisson's `RLock` of
    /// that name takes part.
    pub fn elect(&self, name: impl IntoLockName) -> Election {
        Election::new(self.clone(), name.into_lock_name())
    }
}

/// A leader election by its name. [`LockManager::elect`] makes it. It is cheap to clone, and holds nothing itself.
///
/// The leader holds a lease, which is renewed while it lives. If its process dies, another one leads once the lease is
/// over; if it [resigns](Leader::resign) or shuts down, at once. While a leader says
/// [`is_leader`](Leader::is_leader), nobody else was elected: that is the promise of a mutex, with the same limits. A
/// request that a former leader has sent can still arrive: give the leader's writes its
/// [fencing token](Leader::fencing_token).
/// [The guide](crate::_documentation::guide#leader-election) says more.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// # let manager = locks.clone();
/// # tokio::spawn(async move {
/// #     tokio::time::sleep(Duration::from_secs(3)).await;
/// #     manager.shutdown().await;
/// # });
/// let election = locks.elect("scheduler");
/// // Waits to be elected, and runs the body for as long as it leads; again after every loss.
/// election
///     .lead(async |lease| {
///         let mut every = tokio::time::interval(Duration::from_secs(1));
///         loop {
///             tokio::select! {
///                 () = lease.closing() => return, // a shutdown begins: end in good order
///                 _ = every.tick() => println!("work, with token {:?}", lease.fencing_token()),
///             }
///         }
///     })
///     .await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until somebody campaigns, leads or observes"]
pub struct Election {
    locks: LockManager,
    name: LockName,
    request: LockRequest,
}

impl Election {
    fn new(locks: LockManager, name: LockName) -> Election {
        let request = locks.mutex(name.clone()).wait_forever().leads();
        Election {
            locks,
            name,
            request,
        }
    }

    /// Sets the lease of a leader, from 1 s up: nobody leads for this time after a leader's process has died. Default:
    /// the manager's, 30 s. A short lease is lost more easily: a leader that cannot renew it in time, because the store
    /// or its own process stood still, no longer leads.
    pub fn lease(mut self, lease: Duration) -> Election {
        self.request = self.request.lease(lease);
        self
    }

    /// Sets the name of the leader's lock in logs and metrics. Default: the template of a `key!` name.
    pub fn label(mut self, label: &'static str) -> Election {
        self.request = self.request.label(label);
        self
    }

    /// Waits until it is elected, no matter how long that takes. While the store is away, or refuses what it served this
    /// manager before, it goes on asking; if there are too many waiters in this process, it comes back after a pause. Put
    /// `tokio::time::timeout` around it to limit the wait.
    ///
    /// A campaign inside the body of a leader re-enters, as with every mutex: it is elected at once, and shares that
    /// leadership.
    ///
    /// # Errors
    /// Only errors that a retry cannot help: [`LockError::ShuttingDown`], [`LockError::Denied`] by a store that has not
    /// served such a request of this manager before,
    /// [`LockError::ForeignKey`], [`LockError::InvalidName`], [`LockError::InvalidLease`],
    /// [`LockError::InvalidConfig`]. [`LockError::Lost`] inside the body of a leader that was lost.
    ///
    /// # Cancel safety
    /// Dropping the future ends the campaign, and resigns if it has been elected meanwhile.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let leader = locks.elect("scheduler").campaign().await?;
    /// tokio::select! {
    ///     reason = leader.lost() => println!("deposed: {reason}"),
    ///     () = leader.closing() => println!("the process is about to end"),
    ///     () = std::future::ready(()) => println!("the work is done"),
    /// }
    /// leader.resign().await
    /// # }
    /// ```
    pub fn campaign(
        &self,
    ) -> impl Future<Output = Result<Leader, LockError>> + Send + 'static + use<> {
        let election = self.clone();
        async move {
            let mut pauses = pauses();
            loop {
                match election.request.clone().acquire().await {
                    Ok(guard) => return Ok(Leader { guard }),
                    Err(error) => election.pause_after(error, &mut pauses).await?,
                }
            }
        }
    }

    /// Campaigns, and runs `body` while it leads. When the leadership is lost, the body is dropped at its current
    /// `.await`, as in [`run`](LockRequest::run), and the campaign begins again after a pause: about 0.1 s, twice as much
    /// after each term of less than 10 s, and about 10 s at most. Candidates that wait are elected meanwhile. When the
    /// body ends, the leader resigns, and the body's value is the answer: a body that is to run for ever loops.
    ///
    /// The body is made anew for each term. An `async` closure can borrow the values around it, but neither own nor
    /// change them: `tokio::spawn(async move { election.lead(async |lease| work(&database, lease).await).await })`.
    ///
    /// A [shutdown](LockManager::shutdown) of the manager waits for a body that leads, for 10 s by default. A body that
    /// ends on [`closing`](Lease::closing) returns its value; one that does not is dropped, and the answer is
    /// [`LockError::ShuttingDown`]. That is also the answer to callers that did not lead.
    ///
    /// # Errors
    /// The same as [`campaign`](Election::campaign).
    ///
    /// # Cancel safety
    /// Dropping the future drops the body first and then resigns in the background.
    pub fn lead<F, Fut>(
        &self,
        mut body: F,
    ) -> impl Future<Output = Result<Fut::Output, LockError>> + use<F, Fut>
    where
        F: FnMut(Lease) -> Fut,
        Fut: Future,
    {
        let election = self.clone();
        async move {
            let mut pauses = pauses();
            loop {
                let term = election.request.clone();
                match term.run_outcome(&mut body).await {
                    Ok(Outcome::Cancelled { loss }) => {
                        if was_long(&loss) {
                            pauses.reset();
                        }
                        election.pause(&mut pauses).await;
                    }
                    Ok(completed) => return completed.into_result(),
                    Err(error) => election.pause_after(error, &mut pauses).await?,
                }
            }
        }
    }

    /// Watches who leads, without campaigning: see [`LeaderObserver`].
    pub fn observe(&self) -> LeaderObserver {
        LeaderObserver::new(self.locks.clone(), self.name.clone())
    }

    /// Pauses if another campaign can help.
    ///
    /// # Errors
    /// The same error, if it cannot.
    async fn pause_after(&self, error: LockError, pauses: &mut Backoff) -> Result<(), LockError> {
        // It is an ancestor's hold that is lost: the body under it must end, not wait.
        if !error.is_retryable() || matches!(error, LockError::Lost { .. }) {
            return Err(error);
        }
        self.pause(pauses).await;
        Ok(())
    }

    /// Pauses. A shutdown ends the pause: the next request then fails.
    async fn pause(&self, pauses: &mut Backoff) {
        tokio::select! {
            () = clock::sleep(pauses.pause()) => {}
            () = self.locks.core().life.closing() => {}
        }
    }
}

/// Returns whether a term was so long that its loss has nothing to do with the losses before.
fn was_long(loss: &LockError) -> bool {
    matches!(loss, LockError::Lost { held_for, .. } if *held_for >= LONGEST_PAUSE)
}

/// A leader, as [`Election::campaign`] returns it. It leads until it resigns, is dropped, or is lost.
///
/// Its lease is renewed in the background. Check [`is_leader`](Leader::is_leader) or wait for [`lost`](Leader::lost): a
/// loss notifies such a leader, but does not stop it. [`Election::lead`] stops its body.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let leader = locks.elect("scheduler").campaign().await?;
/// assert!(leader.is_leader());
/// println!("work, with token {:?}", leader.fencing_token());
/// leader.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a leader that is dropped has resigned"]
pub struct Leader {
    guard: LockGuard,
}

impl Leader {
    /// Returns the election's name, without the namespace.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Returns true until the local deadline, or until a loss is known. Nobody else was elected before that, provided
    /// that the store kept the key and its clock did not step. It does no I/O.
    #[must_use = "nothing stops the code after it if the leadership is lost: ask in a condition"]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns the fencing token of this term, which is larger than that of every term before. It is `None` on a
    /// quorum, and with [`fencing(false)`](crate::LockManagerBuilder::fencing).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.guard.fencing_token()
    }

    /// Returns a view of the leadership to pass around. It does not keep the leadership.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Resolves when the leadership is lost; never after it was resigned.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Resolves when the manager begins to shut down, which ends the leadership after a grace period: see
    /// [`Lease::closing`].
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.guard.closing()
    }

    /// Gives up the leadership, so that another one is elected at once. Dropping the leader does so in the background.
    ///
    /// # Errors
    /// The same as [`LockGuard::release`]: [`LockError::Lost`] if the leadership was lost before, so somebody else may
    /// have led while this leader lived.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the resignation.
    pub fn resign(self) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
        self.guard.release()
    }
}
