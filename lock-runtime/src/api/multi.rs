//! Several locks as one: all or none, in an order that cannot deadlock.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::{CheckedRequest, Deadline};
use crate::acquire::multi;
use crate::acquire::try_acquire::TryAcquire;
use crate::api::guard::LockGuard;
use crate::api::lease::Lease;
use crate::api::request::LockRequest;
use crate::api::run::Run;
use crate::hold::{Caller, Core};
use crate::protect::Outcome;
use crate::values::options::check_wait;
use crate::values::{Kind, LockError, config};

/// The most locks of one request: as many as one script takes in well under a millisecond.
const MOST: usize = 128;

/// A request for several locks as one. [`LockManager::multi`](crate::LockManager::multi) makes it.
///
/// Either all of them are acquired or none. They are taken in the order of their keys, not in that of the list, so two
/// requests for the same locks cannot deadlock. If a set is asked for while another lock is held, that lock is outside
/// this order. Locks of one key in different stores are taken in the order given: give it the same way everywhere.
///
/// A free set of mutexes of one store is taken by one script, in one round trip. Otherwise the locks are taken one
/// by one; while the future waits for the next one, it renews those that it has already, fixed leases too. If nobody
/// polls it any more, they end with their leases, and it takes them again when it is polled. `min_hold` and `max_hold`
/// count from when the set is complete.
///
/// A lock that is named twice is taken once, with the options of its first request. Through two managers of one store it
/// is not seen to be one lock: the set waits for itself until its wait is over. Permits of one semaphore may be
/// named once only. One [`LockGuard`] holds all of them, with one fencing token per [member](LockGuard::members); it is
/// lost as soon as one of them is lost.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let both = locks.multi([locks.mutex("account:1"), locks.mutex("account:2")]);
/// let guard = both.acquire().await?;
/// for member in guard.members() {
///     println!("{} with token {:?}", member.name, member.fencing_token);
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct MultiRequest {
    members: Vec<LockRequest>,
    wait: Option<Option<Duration>>,
}

/// One lock of a set, checked.
type Member = (Arc<Core>, CheckedRequest);

/// Makes attempts of the members. The set has one deadline for all of them.
fn attempts(members: Vec<Member>, deadline: Deadline) -> Vec<Attempt> {
    let attempt = |(core, request)| Attempt {
        core,
        request,
        deadline,
    };
    members.into_iter().map(attempt).collect()
}

fn names(members: &[Attempt]) -> String {
    let names: Vec<_> = members.iter().map(|one| one.key().name()).collect();
    names.join(", ")
}

impl MultiRequest {
    pub(crate) fn new(members: Vec<LockRequest>) -> MultiRequest {
        MultiRequest {
            members,
            wait: None,
        }
    }

    /// Waits up to `wait` for all of the locks together; zero tries once. Default: the longest wait of the members.
    pub fn wait(mut self, wait: Duration) -> MultiRequest {
        self.wait = Some(Some(wait));
        self
    }

    /// Waits for the locks for as long as it takes.
    pub fn wait_forever(mut self) -> MultiRequest {
        self.wait = Some(None);
        self
    }

    /// Checks everything, before any I/O, and puts the members in order.
    pub(super) fn members(self) -> Result<(Vec<Member>, Option<Duration>), LockError> {
        let given = self.members.len();
        let out_of_bounds = || {
            let why = format!("one guard holds 1 to {MOST} locks, not {given}");
            Err(config(why))
        };
        let mut members: Vec<Member> = Vec::with_capacity(given.min(MOST));
        for request in self.members {
            let (core, request) = request.into_checked()?;
            let same_name = |(other, known): &&Member| {
                Arc::ptr_eq(&core, other) && known.key.raw() == request.key.raw()
            };
            let known = match members.iter().find(same_name) {
                // Here, because each is compared with all before it.
                None if members.len() == MOST => return out_of_bounds(),
                None => {
                    members.push((core, request));
                    continue;
                }
                Some((_, known)) => &known.key,
            };
            let name = known.name();
            let why = if *known != request.key {
                format!("`{name}` is asked for twice, as locks of two kinds")
            } else if known.kind() == Kind::Semaphore {
                format!("permits of `{name}` are asked for twice: ask for them together")
            } else {
                continue;
            };
            return Err(config(why));
        }
        // The sort is stable: of equal keys, the first one given comes first.
        members.sort_by(|(_, a), (_, b)| a.key.raw().cmp(b.key.raw()));
        if members.is_empty() {
            return out_of_bounds();
        }
        // A wait for ever counts as longer than any other.
        let longest = |(_, request): &Member| request.wait.unwrap_or(Duration::MAX);
        let wait = match self.wait {
            Some(wait) => wait,
            None => members
                .iter()
                .map(longest)
                .max()
                .filter(|wait| *wait != Duration::MAX),
        };
        check_wait(wait)?;
        Ok((members, wait))
    }

    /// Acquires all of the locks within the wait.
    ///
    /// # Errors
    /// The same as [`LockRequest::acquire`]; the error names the lock that was not acquired, or all of them if none was
    /// waited for. [`LockError::InvalidConfig`] for an empty list, more than 128 locks, one name as locks of two kinds,
    /// or permits of one semaphore named twice.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what was acquired, and what the store may have granted meanwhile.
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'static {
        acquire_all(self.members())
    }

    /// Acquires the locks if all of them are free now, without waiting for any: within the call timeout, and without I/O
    /// if this process itself holds one of them or queues for it. A set that one script can take is taken as a whole or
    /// not touched (with `replicas` within a longer time, like [`LockRequest::try_acquire`]); any other is taken lock by
    /// lock, and given back if one of them is busy or if the replicas of all have not confirmed within that time.
    ///
    /// # Errors
    /// The same as [`acquire`](MultiRequest::acquire), but if one of them is held: [`TryAcquire::Busy`].
    ///
    /// # Cancel safety
    /// The same as [`acquire`](MultiRequest::acquire).
    pub fn try_acquire(
        self,
    ) -> impl Future<Output = Result<TryAcquire, LockError>> + Send + 'static {
        let caller = Caller::now();
        let members = self.members();
        async move {
            coop::consume_budget().await;
            let deadline = Deadline::new(Some(Duration::ZERO));
            let members = attempts(members?.0, deadline);
            let tried = multi::try_acquire(&members, &deadline, caller).await?;
            Ok(tried.map(LockGuard::new))
        }
    }

    /// Acquires the locks, runs `body` under all of them, and releases: see [`LockRequest::run`].
    ///
    /// # Errors
    /// The same as [`acquire`](MultiRequest::acquire), and [`LockError::Lost`] if the body was dropped because one of
    /// the locks was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body first and then releases in the background.
    pub fn run<F, Fut>(self, body: F) -> impl Future<Output = Result<Fut::Output, LockError>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future,
    {
        Run::new(self.acquire(), body, Outcome::into_result)
    }

    /// Does the same as [`run`](MultiRequest::run), and returns both the value and the loss: see
    /// [`LockRequest::run_outcome`].
    ///
    /// # Errors
    /// The same as [`acquire`](MultiRequest::acquire). A loss during the body is in the [`Outcome`].
    ///
    /// # Cancel safety
    /// The same as [`run`](MultiRequest::run).
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

/// Acquires the locks of a request, unless the request was refused.
pub(super) fn acquire_all(
    members: Result<(Vec<Member>, Option<Duration>), LockError>,
) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'static {
    let caller = Caller::now();
    async move {
        coop::consume_budget().await;
        let (members, wait) = members?;
        let deadline = Deadline::new(wait);
        let members = attempts(members, deadline);
        if !deadline.waits() {
            return match multi::try_acquire(&members, &deadline, caller).await? {
                TryAcquire::Acquired(handles) => Ok(LockGuard::new(handles)),
                TryAcquire::Busy { retry_after } => Err(LockError::Busy {
                    name: names(&members),
                    waited: Duration::ZERO,
                    retry_after,
                    held_here: None,
                }),
            };
        }
        let handles = multi::acquire(&members, &deadline, caller).await?;
        Ok(LockGuard::new(handles))
    }
}
