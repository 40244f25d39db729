//! Taking a set of locks: by one script where that goes, else one by one in their order.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquiredAll, Claim, Fault};
use crate::backoff::jittered;
use crate::clock::{self, Moment};
use crate::core::Core;
use crate::error::{LockError, StoreError};
use crate::joint::{Shares, all_of};
use crate::lineage::Caller;
use crate::observe;
use crate::order::{Order, Patience};
use crate::reentry::ancestor;
use crate::share::Share;
use crate::term::Term;
use crate::wait;

/// One lock of a set, checked.
pub(crate) type Member = (Arc<Core>, Order);

/// Before a set is tried again of which a part was lost while the rest was waited for.
const PAUSE: Duration = Duration::from_millis(25);

/// What came of asking for the whole set.
enum AtOnce {
    Taken(Vec<Share>),
    /// One of them is held, in the store or by this process.
    Busy,
    /// They are of several stores or of several slots, of kinds that do not go together, or held further out.
    Apart,
    Failed(Fault),
}

/// Acquires all of them within the patience, which is for more than one try.
pub(crate) async fn acquire(
    members: &[Member],
    patience: &Patience,
    caller: Caller,
) -> Result<Shares, LockError> {
    loop {
        let shares = match at_once(members, Some(patience), &caller).await? {
            AtOnce::Taken(shares) => shares,
            AtOnce::Failed(fault) if !fault.is_passing() || patience.is_over() => {
                return Err(fault.into_error(first_name(members)));
            }
            // Taken one by one, they are asked for again for as long as there is time.
            AtOnce::Busy | AtOnce::Apart | AtOnce::Failed(_) => {
                one_by_one(members, patience, &caller).await?
            }
        };
        let now = clock::now();
        // A set of which one was lost, or nearly so, while the rest was waited for is no set. How long an ancestor's
        // hold lasts is not for its nested shares to say.
        let mut set = shares.iter().zip(members);
        let spoilt = set.any(|(share, (_, order))| {
            share.hold().known_loss().is_some()
                || !share.is_nested() && wait::came_too_late(share.hold(), order, now)
        });
        if !spoilt {
            return joined(shares, members);
        }
        if patience.is_over_at(now) {
            return intact(shares, members);
        }
        drop(shares);
        patience.pause(jittered(PAUSE)).await;
    }
}

/// Acquires all of them if they are free now. `None` if one of them is not.
pub(crate) async fn try_acquire(
    members: &[Member],
    caller: Caller,
) -> Result<Option<Shares>, LockError> {
    match at_once(members, None, &caller).await? {
        AtOnce::Taken(shares) => return intact(shares, members).map(Some),
        AtOnce::Busy => return Ok(None),
        AtOnce::Failed(fault) => return Err(fault.into_error(first_name(members))),
        AtOnce::Apart => {}
    }
    let Some(timeout) = members
        .iter()
        .map(|(core, _)| core.options.call_timeout)
        .max()
    else {
        return Ok(None);
    };
    // One time for all of them: each call by itself may take as long.
    let Ok(tried) = tokio::time::timeout(timeout, try_each(members, &caller)).await else {
        return Err(LockError::Unavailable {
            name: first_name(members).to_owned(),
            source: StoreError::new(format!("no answer within {timeout:?}")),
        });
    };
    tried?.map(|shares| intact(shares, members)).transpose()
}

async fn try_each(members: &[Member], caller: &Caller) -> Result<Option<Vec<Share>>, LockError> {
    let mut shares: Vec<Share> = Vec::with_capacity(members.len());
    for (core, order) in members {
        match wait::try_acquire(core.clone(), unrenewed(order), caller.clone()).await? {
            Some(share) => shares.push(share),
            None => return Ok(None),
        }
    }
    Ok(Some(shares))
}

/// A hold that was lost before its caller saw it is no hold.
fn intact(shares: Vec<Share>, members: &[Member]) -> Result<Shares, LockError> {
    for share in &shares {
        share.hold().check()?;
    }
    joined(shares, members)
}

/// The set is complete and goes to its caller: from here on the watchdog renews it.
fn joined(mut shares: Vec<Share>, members: &[Member]) -> Result<Shares, LockError> {
    for (share, (_, order)) in shares.iter_mut().zip(members) {
        share.renew_from_now_on(order.terms.renewed);
    }
    let none = || crate::options::config("one guard holds at least one lock");
    Shares::joined(shares).ok_or_else(none)
}

/// The order for one lock of a set that is not complete yet. The caller does not have that lock, so only the caller's
/// own future may renew it ([`keeping`]), and does so while it is polled.
fn unrenewed(order: &Order) -> Order {
    let mut order = order.clone();
    order.terms.renewed = false;
    order
}

fn first_name(members: &[Member]) -> &str {
    members.first().map_or("", |(_, order)| order.key.name())
}

/// Asks for the whole set by one script, if it is of mutexes of one store that nobody here deals with.
async fn at_once(
    members: &[Member],
    patience: Option<&Patience>,
    caller: &Caller,
) -> Result<AtOnce, LockError> {
    let [(core, first), others @ ..] = members else {
        return Ok(AtOnce::Apart);
    };
    core.start_here()?;
    let goes = |order: &Order| {
        order.key.kind().is_mutex() && matches!(ancestor(core, order, caller), Ok(None))
    };
    if others.is_empty()
        || !others.iter().all(|(other, _)| Arc::ptr_eq(core, other))
        || !members.iter().all(|(_, order)| goes(order))
    {
        return Ok(AtOnce::Apart);
    }
    // Until the grants count as guards: a shutdown in between would leave the locks to their leases.
    let _asking = core.life.under_way.enter();
    core.life.admit(&first.key)?;
    let mut places = Vec::with_capacity(members.len());
    for (_, order) in members {
        match core.gates.try_enter(&order.key) {
            Some(place) => places.push(place),
            None => return Ok(AtOnce::Busy),
        }
    }
    let since = clock::now();
    let claim = |order| {
        let mut claim = claim_of(core, order, since);
        if let Some(patience) = patience {
            claim.timeout = patience.cut(claim.timeout, since);
            claim.waits = patience.rest(None, since);
        }
        claim
    };
    let claims: Vec<Claim<'_>> = members.iter().map(|(_, order)| claim(order)).collect();
    let granted = match core.backend.acquire_all(&claims).await {
        Ok(AcquiredAll::Granted(granted)) => granted,
        Ok(AcquiredAll::Busy) => return Ok(AtOnce::Busy),
        Ok(AcquiredAll::Apart) => return Ok(AtOnce::Apart),
        Err(fault) => return Ok(AtOnce::Failed(fault)),
    };
    let mut shares: Vec<Share> = Vec::with_capacity(members.len());
    for (((_, order), claim), (place, granted)) in members
        .iter()
        .zip(&claims)
        .zip(places.into_iter().zip(granted))
    {
        let holder = claim.stake.holder;
        let share = Share::admit(core, &order.key, Some(place), holder, order.terms, granted);
        shares.push(share.acquired_in(caller.frame()));
        observe::acquired(order.terms.label, order.key.name(), since);
    }
    core.life.admit(&first.key)?;
    Ok(AtOnce::Taken(shares))
}

fn claim_of<'a>(core: &Core, order: &'a Order, now: Moment) -> Claim<'a> {
    core.claim(&order.key, core.ids.fresh(), &order.terms, now)
}

/// Takes them in their order, waiting for each as long as there is time. What was taken before is renewed meanwhile.
async fn one_by_one(
    members: &[Member],
    patience: &Patience,
    caller: &Caller,
) -> Result<Vec<Share>, LockError> {
    let mut shares: Vec<Share> = Vec::with_capacity(members.len());
    for (core, order) in members {
        let now = clock::now();
        if patience.is_over_at(now) {
            // No further call: a request without a wait would take all of its time for each of them.
            return Err(order.busy(patience, None));
        }
        let rest = Order {
            wait: patience.until.map(|until| until - now),
            ..unrenewed(order)
        };
        let acquiring = wait::acquire(core.clone(), rest, caller.clone());
        let share = keeping(&shares, acquiring).await?;
        shares.push(share);
    }
    // A fixed lease starts anew when the set is complete. One that does not is looked at by the caller.
    let earlier = shares.len().saturating_sub(1);
    let fixed = shares[..earlier].iter().zip(members);
    let fixed = fixed.filter(|(_, (_, order))| !order.terms.renewed);
    let _ = renew(fixed.map(|(share, _)| share)).await;
    Ok(shares)
}

/// Renews what is held already, while something else is waited for. Nothing is renewed while nobody polls this.
async fn keeping<T>(shares: &[Share], waiting: impl Future<Output = T>) -> T {
    let terms = shares.iter().filter(|share| share.is_fixed());
    let Some(shortest) = terms.map(|share| share.hold().term()).min() else {
        return waiting.await;
    };
    tokio::select! {
        biased;
        done = waiting => done,
        never = renew_always(shares, shortest) => match never {},
    }
}

async fn renew_always(shares: &[Share], shortest: Term) -> Infallible {
    let mut pause = shortest.cadence();
    loop {
        clock::sleep(pause).await;
        // Repeated soon if the store did not answer. A lost one is looked at when the wait is over.
        pause = match renew(shares.iter()).await {
            Err(LockError::Unavailable { .. }) => shortest.retry_pause(),
            _ => shortest.cadence(),
        };
    }
}

/// Extends the leases of those that the watchdog does not renew.
async fn renew(shares: impl Iterator<Item = &Share>) -> Result<(), LockError> {
    type Renewing<'a> = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>>;
    let fixed = shares.filter(|share| share.is_fixed());
    let renewals = fixed.map(|share| Box::pin(renew_one(share)) as Renewing<'_>);
    all_of(renewals.collect()).await
}

/// As the watchdog does, with a part of the lease as the limit: a lost answer must leave time for another request.
async fn renew_one(share: &Share) -> Result<(), LockError> {
    let term = share.hold().term();
    let timeout = term.call_timeout(share.core().options.call_timeout);
    let late = |_| LockError::Unavailable {
        name: share.hold().key().name().to_owned(),
        source: StoreError::new(format!("no answer to the renewal within {timeout:?}")),
    };
    tokio::time::timeout(timeout, share.renew(term))
        .await
        .unwrap_or_else(|elapsed| Err(late(elapsed)))
}
