//! Acquires a set of locks, by one script if possible, and otherwise one by one in their order.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire;
use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::{CheckedRequest, Deadline};
use crate::acquire::reentry::ancestor;
use crate::acquire::try_acquire::TryAcquire;
use crate::backend::{AcquireRequest, AcquiredAll, Fault};
use crate::hold::{Asking, Caller, Handles, HoldHandle, all_of};
use crate::observe::spans::Wait;
use crate::queue::may_rest;
use crate::values::{LockError, Moment, Ttl, clock, jittered};

/// The pause after a set has lost one lock while it waited for another.
const PAUSE: Duration = Duration::from_millis(25);

/// The outcome of a request for the whole set.
enum AtOnce {
    Taken(Vec<HoldHandle>),
    /// One of the locks is held, in the store or by this process.
    Busy,
    /// They are asked for one by one: they are in several stores or slots, of kinds that do not fit in one script, held by an
    /// ancestor or kept by this process; or the one request failed in a way that may pass.
    Apart,
}

/// Acquires all of the locks before the deadline, which is that of each member, in one or several tries.
pub(crate) async fn acquire(
    members: &[Attempt],
    deadline: &Deadline,
    caller: Caller,
) -> Result<Handles, LockError> {
    loop {
        let handles = match at_once(members, deadline, &caller).await? {
            AtOnce::Taken(handles) => handles,
            // One by one, each is asked for again until the deadline.
            AtOnce::Busy | AtOnce::Apart => one_by_one(members, deadline, &caller).await?,
        };
        let now = clock::now();
        // The set is acquired again if one of its locks was lost, or has nearly expired, during the wait for the others. A
        // nested handle does not count, because it does not decide how long its ancestor's hold lasts.
        let mut set = handles.iter().zip(members);
        let spoilt = set.any(|(handle, Attempt { request, .. })| {
            handle.hold().known_loss().is_some()
                || !handle.is_nested() && acquire::came_too_late(handle.hold(), request, now)
        });
        if !spoilt {
            return joined(handles, members);
        }
        if deadline.is_over_at(now) {
            return intact(handles, members);
        }
        drop(handles);
        deadline.pause(jittered(PAUSE)).await;
    }
}

/// Acquires all of the locks if they are free now. The deadline is that of each member, and over.
pub(crate) async fn try_acquire(
    members: &[Attempt],
    deadline: &Deadline,
    caller: Caller,
) -> Result<TryAcquire<Handles>, LockError> {
    match at_once(members, deadline, &caller).await? {
        AtOnce::Taken(handles) => return intact(handles, members).map(TryAcquire::Acquired),
        AtOnce::Busy => {
            tell(members, deadline.since, Ok(false));
            return Ok(TryAcquire::Busy { retry_after: None });
        }
        AtOnce::Apart => {}
    }
    let timeouts = members.iter().map(|one| one.core.options.call_timeout);
    let timeout = timeouts.max().unwrap_or_default();
    // One time limit for all of the requests, each of which may take as long by itself.
    let tried = tokio::time::timeout(timeout, try_each(members, &caller)).await;
    let late = |_| {
        let why = format!("no answer within {timeout:?}");
        Err(LockError::unavailable(first_name(members), why))
    };
    tried.unwrap_or_else(late)
}

async fn try_each(members: &[Attempt], caller: &Caller) -> Result<TryAcquire<Handles>, LockError> {
    let mut handles: Vec<HoldHandle> = Vec::with_capacity(members.len());
    for Attempt { core, request, .. } in members {
        match acquire::try_acquire(core.clone(), unrenewed(request), caller.clone()).await? {
            TryAcquire::Acquired(handle) => handles.push(handle),
            TryAcquire::Busy { retry_after } => return Ok(TryAcquire::Busy { retry_after }),
        }
    }
    intact(handles, members).map(TryAcquire::Acquired)
}

/// Refuses a set in which a hold was lost before its caller got it.
fn intact(handles: Vec<HoldHandle>, members: &[Attempt]) -> Result<Handles, LockError> {
    for handle in &handles {
        handle.hold().check()?;
    }
    joined(handles, members)
}

/// Completes the set for its caller: from now on the watchdog renews it, and `min_hold` and `max_hold` count.
fn joined(mut handles: Vec<HoldHandle>, members: &[Attempt]) -> Result<Handles, LockError> {
    for (handle, Attempt { request, .. }) in handles.iter_mut().zip(members) {
        let options = request.hold_options;
        handle.reach_caller(options.renewed, request.min_hold.as_deref());
        // A nested handle does not limit its ancestor's hold.
        if let Some(longest) = options.max_hold
            && !handle.is_nested()
        {
            handle.ends_after(longest);
        }
    }
    let none = || crate::values::error::config("one guard holds at least one lock");
    Handles::joined(handles).ok_or_else(none)
}

/// Returns the request for one lock of an incomplete set. The caller does not have that lock yet, so only the caller's own
/// future renews it ([`keeping`]), while it is polled.
fn unrenewed(request: &CheckedRequest) -> CheckedRequest {
    let mut request = request.clone();
    request.hold_options.renewed = false;
    // An incomplete set must not keep a key taken, nor end by a long wait: both count from when the set is complete.
    request.min_hold = None;
    request.hold_options.max_hold = None;
    request
}

/// Counts the outcome of a request for the whole set, for each of its locks.
fn tell(members: &[Attempt], since: Moment, outcome: Result<bool, &LockError>) {
    let now = clock::now();
    for Attempt { request, .. } in members {
        Wait::began(&request.key, &request.hold_options.label, &since).came_to(outcome, now);
    }
}

/// Returns the error of a request for the whole set, after it was counted.
fn failed(fault: Fault, members: &[Attempt], since: Moment) -> LockError {
    let error = fault.into_error(first_name(members));
    tell(members, since, Err(&error));
    error
}

fn first_name(members: &[Attempt]) -> &str {
    members.first().map_or("", |first| first.key().name())
}

/// Asks for the whole set by one script, if all are mutexes of one store that this process neither holds nor asks for.
async fn at_once(
    members: &[Attempt],
    deadline: &Deadline,
    caller: &Caller,
) -> Result<AtOnce, LockError> {
    let [first, others @ ..] = members else {
        return Ok(AtOnce::Apart);
    };
    let core = &first.core;
    core.start_here()?;
    let goes = |one: &Attempt| {
        one.kind().is_mutex() && matches!(ancestor(core, &one.request, caller), Ok(None))
    };
    if others.is_empty()
        || !others.iter().all(|other| Arc::ptr_eq(core, &other.core))
        || !members.iter().all(goes)
        // A lock that this process keeps needs no request.
        || members.iter().any(|one| core.queues.is_kept(one.key()))
    {
        return Ok(AtOnce::Apart);
    }
    // It is kept until the grants count as guards, so that a shutdown waits; otherwise only the leases would end the locks.
    let _asking = core.life.under_way.enter();
    if let Some(why) = core.life.closed() {
        return Err(failed(Fault::Closed(why), members, deadline.since));
    }
    let since = clock::now();
    let mut fronts = Vec::with_capacity(members.len());
    for one in members {
        let may_wait = |end| may_rest(since, deadline.until, end);
        match core.queues.try_enter(one.key(), may_wait) {
            Some(front) => fronts.push(front),
            None => return Ok(AtOnce::Busy),
        }
    }
    let mut now = since;
    let (calls, granted) = loop {
        let calls = members
            .iter()
            .map(|one| one.call(core.ids.fresh(), now, *deadline));
        let calls: Vec<AcquireRequest<'_>> = calls.collect();
        let answer = core.backend.acquire_all(&calls).await;
        match core.served.judge(Asking::For(first.kind()), answer) {
            Ok(AcquiredAll::Granted(granted)) => break (calls, granted),
            Ok(AcquiredAll::Busy) => return Ok(AtOnce::Busy),
            Ok(AcquiredAll::Apart) => return Ok(AtOnce::Apart),
            // The next requests name other holders.
            Err(Fault::Outdated) => now = clock::now(),
            // One by one, each is asked for again until the deadline.
            Err(fault) if fault.is_passing() && !deadline.is_over() => return Ok(AtOnce::Apart),
            Err(fault) => return Err(failed(fault, members, deadline.since)),
        }
    };
    let mut handles: Vec<HoldHandle> = Vec::with_capacity(members.len());
    for ((one, call), (front, granted)) in members
        .iter()
        .zip(&calls)
        .zip(fronts.into_iter().zip(granted))
    {
        let handle = one.admit(Some(front), call.hold_ref.holder, granted, None);
        handles.push(handle.acquired_in(caller.frame()));
    }
    tell(members, since, Ok(true));
    core.life.check_open(first.key())?;
    Ok(AtOnce::Taken(handles))
}

/// Acquires the locks in their order, each within the rest of the wait. The locks that it has are renewed meanwhile.
async fn one_by_one(
    members: &[Attempt],
    deadline: &Deadline,
    caller: &Caller,
) -> Result<Vec<HoldHandle>, LockError> {
    let mut handles: Vec<HoldHandle> = Vec::with_capacity(members.len());
    let mut due = None;
    for one in members {
        let now = clock::now();
        if deadline.is_over_at(now) {
            // No further request: without a wait, each of them would take its whole time.
            return Err(one.busy(None));
        }
        let rest = CheckedRequest {
            wait: deadline.until.map(|until| until - now),
            ..unrenewed(&one.request)
        };
        let acquiring = acquire::acquire(one.core.clone(), rest, caller.clone());
        let handle = keeping(&handles, &mut due, acquiring).await?;
        handles.push(handle);
    }
    // A fixed lease starts anew when the set is complete. The caller checks whether a lease is long enough.
    let earlier = handles.len().saturating_sub(1);
    let fixed = handles[..earlier].iter().zip(members);
    let fixed = fixed.filter(|(_, one)| !one.request.hold_options.renewed);
    let _ = renew(fixed.map(|(handle, _)| handle)).await;
    Ok(handles)
}

/// Renews the holds of an incomplete set during the wait for the next lock, while the future is polled. The next renewal is
/// `due` then, whichever lock is waited for: many short waits delay it no more than one long wait.
async fn keeping<T>(
    handles: &[HoldHandle],
    due: &mut Option<Moment>,
    waiting: impl Future<Output = T>,
) -> T {
    let hold_options = handles.iter().filter(|handle| handle.is_fixed());
    let Some(shortest) = hold_options
        .map(|handle| handle.hold().tenure().paced_by())
        .min()
    else {
        return waiting.await;
    };
    // The newest of the holds was granted just now.
    let latest = clock::now() + shortest.cadence();
    let due = due.insert(due.map_or(latest, |due| due.earlier(latest)));
    tokio::select! {
        biased;
        done = waiting => done,
        never = renew_always(handles, due, shortest) => match never {},
    }
}

async fn renew_always(handles: &[HoldHandle], due: &mut Moment, shortest: Ttl) -> Infallible {
    loop {
        clock::sleep_until(*due).await;
        // It is repeated soon if the store did not answer. A lost hold is noticed when the wait is over.
        let pause = match renew(handles.iter()).await {
            Err(LockError::Unavailable { .. }) => shortest.retry_pause(),
            _ => shortest.cadence(),
        };
        // Only now: a renewal that ends with the wait is due at once in the next wait.
        *due = clock::now() + pause;
    }
}

/// Extends the leases that the watchdog does not renew.
async fn renew(handles: impl Iterator<Item = &HoldHandle>) -> Result<(), LockError> {
    type Renewing<'a> = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>>;
    let fixed = handles.filter(|handle| handle.is_fixed());
    let renewals = fixed.map(|handle| Box::pin(renew_one(handle)) as Renewing<'_>);
    all_of(renewals.collect()).await
}

/// Renews like the watchdog, with a part of the lease as the limit, so that a lost answer leaves time for another request.
async fn renew_one(handle: &HoldHandle) -> Result<(), LockError> {
    let ttl = handle.hold().tenure().ttl();
    let timeout = ttl.call_timeout(handle.core().options.call_timeout);
    let renewed = tokio::time::timeout(timeout, handle.renew(ttl)).await;
    // No caller sees the error, only that it may pass.
    let name = handle.hold().key().name();
    renewed.map_err(|_| LockError::unavailable(name, "no answer in time"))?
}

#[cfg(test)]
mod tests;
