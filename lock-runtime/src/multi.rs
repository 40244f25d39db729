//! Several locks as one: all or none, in an order that cannot deadlock.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquiredAll, Claim};
use crate::clock::{self, Moment};
use crate::core::Core;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::joint::Shares;
use crate::kind::Kind;
use crate::lineage::Chain;
use crate::observe;
use crate::options::{check_wait, config};
use crate::order::{Order, Patience};
use crate::reentry::ancestor_with;
use crate::request::LockRequest;
use crate::run::{Run, ValueOrLoss};
use crate::scope::Outcome;
use crate::share::Share;
use crate::view::Lease;
use crate::wait;

/// As many as one script takes in well under a millisecond.
const MOST: usize = 128;

/// A request for several locks as one: made by [`LockManager::multi`](crate::LockManager::multi).
///
/// Either all of them are had or none. They are taken in the order of their keys, not in that of the list, so two
/// requests for the same locks cannot deadlock, whatever else each of them waits for. Locks of one key in different
/// stores are taken in the order given: give it the same way everywhere.
///
/// A free set of mutexes of one store is taken by one script, in one round trip. Otherwise the locks are taken one
/// by one; those that are had already are kept, and renewed, while the next one is waited for.
///
/// A lock that is named twice is taken once, on the terms of its first request; permits of one semaphore are asked for
/// together. One [`LockGuard`] holds all of them,
/// with one fencing token per [member](LockGuard::members); it is lost as soon as one of them is lost.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired or run"]
pub struct MultiRequest {
    members: Vec<LockRequest>,
    wait: Option<Option<Duration>>,
}

/// One lock of the set, checked.
type Member = (Arc<Core>, Order);

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

    /// Whether busy locks are waited for: true unless the wait is zero.
    pub fn waits(&self) -> bool {
        match self.wait {
            Some(wait) => wait != Some(Duration::ZERO),
            None => self.members.iter().any(LockRequest::waits),
        }
    }

    /// Checks everything, before any I/O, and puts the members in order.
    fn members(self) -> Result<(Vec<Member>, Option<Duration>), LockError> {
        let mut members: Vec<Member> = Vec::with_capacity(self.members.len());
        for request in self.members {
            let (core, order) = request.into_order()?;
            let same_name = |(other, known): &&Member| {
                Arc::ptr_eq(&core, other) && known.key.raw() == order.key.raw()
            };
            match members.iter().find(same_name) {
                None => members.push((core, order)),
                Some((_, known)) if known.key == order.key => {
                    if known.key.kind() == Kind::Permits {
                        let name = order.key.name();
                        let why = format!(
                            "permits of `{name}` are asked for twice: ask for them together"
                        );
                        return Err(config(why));
                    }
                }
                Some(_) => {
                    let name = order.key.name();
                    let why = format!("`{name}` is asked for twice, as locks of two kinds");
                    return Err(config(why));
                }
            }
        }
        // Stable: of equal keys the first one given comes first.
        members.sort_by(|(_, a), (_, b)| a.key.raw().cmp(b.key.raw()));
        if members.is_empty() || members.len() > MOST {
            let count = members.len();
            return Err(config(format!(
                "one guard holds 1 to {MOST} locks, not {count}"
            )));
        }
        // Longer than any duration: for ever.
        let longest = |(_, order): &Member| order.wait.unwrap_or(Duration::MAX);
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
    /// As [`LockRequest::acquire`]; the error names the lock that was not had. [`LockError::InvalidConfig`] for an
    /// empty list, more than 128 locks, or one name as locks of two kinds.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what was acquired, and what the store may have granted meanwhile.
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + 'static {
        let chain = Chain::current();
        let members = self.members();
        async move {
            let (members, wait) = members?;
            let shares = acquire(members, Patience::new(wait), chain).await?;
            Ok(LockGuard::new(shares))
        }
    }

    /// Acquires the locks if all of them are free now, without waiting for any.
    ///
    /// # Errors
    /// As [`acquire`](MultiRequest::acquire), but if one of them is held: `Ok(None)`.
    ///
    /// # Cancel safety
    /// As [`acquire`](MultiRequest::acquire).
    pub fn try_acquire(
        self,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send + 'static {
        let acquiring = self.wait(Duration::ZERO).acquire();
        async move {
            match acquiring.await {
                Ok(guard) => Ok(Some(guard)),
                Err(LockError::Busy { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Acquires the locks, runs `body` under all of them, and releases: see [`LockRequest::run`].
    ///
    /// # Errors
    /// As [`acquire`](MultiRequest::acquire), and [`LockError::Lost`] if the body was dropped because one of the
    /// locks was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body first and then releases in the background.
    pub fn run<F, Fut>(self, body: F) -> impl Future<Output = Result<Fut::Output, LockError>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future,
    {
        ValueOrLoss::new(self.run_outcome(body))
    }

    /// As [`run`](MultiRequest::run), and tells both the value and the loss: see [`LockRequest::run_outcome`].
    ///
    /// # Errors
    /// As [`acquire`](MultiRequest::acquire). A loss during the body is in the [`Outcome`].
    ///
    /// # Cancel safety
    /// As [`run`](MultiRequest::run).
    pub fn run_outcome<F, Fut>(
        self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<Fut::Output>, LockError>>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future,
    {
        Run::new(self.acquire(), body)
    }
}

async fn acquire(
    members: Vec<Member>,
    patience: Patience,
    chain: Option<Chain>,
) -> Result<Shares, LockError> {
    loop {
        let shares = match at_once(&members, &chain).await? {
            Some(shares) => shares,
            None => one_by_one(&members, patience, &chain).await?,
        };
        let now = clock::now();
        // A set of which one was lost, or nearly so, while the rest was waited for is no set.
        let mut set = shares.iter().zip(&members);
        if !set.any(|(share, (_, order))| wait::came_too_late(share.hold(), order, now)) {
            let none = || config("one guard holds at least one lock");
            return Shares::joined(shares).ok_or_else(none);
        }
        if patience.is_over_at(now) {
            for share in &shares {
                share.hold().check()?;
            }
        }
    }
}

/// Takes a set that is free in one round trip. `None`: one of them is not free, or they do not go together.
async fn at_once(
    members: &[Member],
    chain: &Option<Chain>,
) -> Result<Option<Vec<Share>>, LockError> {
    let [(core, first), others @ ..] = members else {
        return Ok(None);
    };
    let head = chain.as_ref().and_then(Chain::head);
    let goes = |order: &Order| {
        order.key.kind().is_mutex()
            && head.is_none_or(|head| matches!(ancestor_with(core, order, head), Ok(None)))
    };
    if others.is_empty()
        || !others.iter().all(|(other, _)| Arc::ptr_eq(core, other))
        || !members.iter().all(|(_, order)| goes(order))
    {
        return Ok(None);
    }
    core.start();
    // Until the grants count as guards: a shutdown in between would leave the locks to their leases.
    let _asking = core.life.guards.enter();
    core.life.admit(&first.key)?;
    let mut places = Vec::with_capacity(members.len());
    for (_, order) in members {
        match core.gates.try_enter(&order.key) {
            Some(place) => places.push(place),
            None => return Ok(None),
        }
    }
    let since = clock::now();
    let claims: Vec<Claim<'_>> = members
        .iter()
        .map(|(_, order)| core.claim(&order.key, core.ids.fresh(), &order.terms, since))
        .collect();
    let granted = match core.backend.acquire_all(&claims).await {
        Ok(AcquiredAll::Granted(granted)) => granted,
        Ok(AcquiredAll::Busy) => return Ok(None),
        // Taken one by one, they are tried again for as long as the caller is patient.
        Err(fault) if fault.is_passing() => return Ok(None),
        Err(fault) => return Err(fault.into_error(first.key.name())),
    };
    let mut shares: Vec<Share> = Vec::with_capacity(members.len());
    for (((_, order), claim), (place, granted)) in members
        .iter()
        .zip(&claims)
        .zip(places.into_iter().zip(granted))
    {
        let parent = match shares.last() {
            Some(share) => Some(share.level().clone()),
            None => head.cloned(),
        };
        let holder = claim.stake.holder;
        let share = Share::admit(core, &order.key, Some(place), holder, order.terms, granted);
        shares.push(share.under(parent));
        observe::acquired(order.terms.label, order.key.name(), since);
    }
    core.life.admit(&first.key)?;
    Ok(Some(shares))
}

/// Takes them in their order, waiting for each as long as there is time. What was taken before is renewed meanwhile,
/// and a fixed lease starts anew when the set is complete.
async fn one_by_one(
    members: &[Member],
    patience: Patience,
    chain: &Option<Chain>,
) -> Result<Vec<Share>, LockError> {
    let mut shares: Vec<Share> = Vec::with_capacity(members.len());
    for (core, order) in members {
        let chain = match shares.last() {
            // The one before is an ancestor of this one, and so of whatever runs under the set.
            Some(share) => Some(Chain::here(share.level().clone())),
            None => chain.clone(),
        };
        let order = Order {
            wait: patience.until.map(Moment::remaining),
            ..order.clone()
        };
        shares.push(wait::acquire(core.clone(), order, chain).await?);
    }
    if let [earlier @ .., _last] = shares.as_slice() {
        for (share, (_, order)) in earlier.iter().zip(members) {
            if !order.terms.renewed {
                share.renew(order.terms.term).await?;
            }
        }
    }
    Ok(shares)
}
