//! From a request to a hold: re-enter, queue, ask the store, wait for a release, ask again.

pub(crate) mod attempt;
pub(crate) mod checked_request;
pub(crate) mod contend;
pub(crate) mod counter;
pub(crate) mod fair;
pub(crate) mod front_seat;
pub(crate) mod ids;
pub(crate) mod local;
pub(crate) mod multi;
pub(crate) mod reentry;
pub(crate) mod shared;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod transaction;
pub(crate) mod try_acquire;

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::CheckedRequest;
use crate::acquire::contend::Asked;
use crate::acquire::reentry::{ancestor, enter_nested};
use crate::acquire::try_acquire::TryAcquire;
use crate::hold::{Caller, Core, Hold, HoldHandle};
use crate::values::{Kind, LockError, LostReason, Moment, clock, rare};

/// Acquires within the request's wait.
pub(crate) async fn acquire(
    core: Arc<Core>,
    request: CheckedRequest,
    caller: Caller,
) -> Result<HoldHandle, LockError> {
    core.start_here()?;
    let attempt = Attempt::new(core, request);
    let wait = attempt.begin();
    match acquire_in_time(&attempt, &caller).await {
        Ok((mut handle, at)) => {
            wait.came_to(Ok(true), at);
            let request = &attempt.request;
            handle.reach_caller(request.hold_options.renewed, request.min_hold.as_deref());
            Ok(handle)
        }
        Err(error) => {
            wait.came_to(Err(&error), clock::now());
            Err(error)
        }
    }
}

/// Also returns the time at which the caller got the lock.
async fn acquire_in_time(
    attempt: &Attempt,
    caller: &Caller,
) -> Result<(HoldHandle, Moment), LockError> {
    // The clock is read again only after steps that may have taken time.
    let mut now = attempt.deadline.since;
    if let Some(ancestor) = ancestor(&attempt.core, &attempt.request, caller)? {
        let at_once = match ancestor.access_now(attempt.kind()) {
            Some(access) => enter_nested(attempt, &ancestor, access)?,
            None => None,
        };
        let handle = match at_once {
            Some(handle) => Some(handle),
            None => rare(reentry::acquire(attempt, caller)).await?,
        };
        if let Some(handle) = handle {
            return Ok((handle.acquired_in(caller.frame()), clock::now()));
        }
        now = clock::now();
    }
    // This check follows the re-entry, because a body that may finish during a shutdown may also nest.
    attempt.core.life.check_open(attempt.key())?;
    loop {
        let handle;
        (handle, now) = match attempt.kind() {
            Kind::Fair => (rare(fair::acquire(attempt, now)).await?, clock::now()),
            Kind::Read => (rare(shared::acquire(attempt)).await?, clock::now()),
            _ => local::acquire(attempt, now).await?,
        };
        // Dropping the handle gives the lock back.
        attempt.core.life.check_open(attempt.key())?;
        if came_too_late(handle.hold(), &attempt.request, now) {
            if !attempt.deadline.is_over_at(now) {
                continue;
            }
            // A hold that was lost before its caller saw it is no hold.
            handle.hold().check()?;
        }
        return Ok((handle.acquired_in(caller.frame()), now));
    }
}

/// Acquires at once or not at all. Without I/O if this process holds the key or waits for it.
pub(crate) async fn try_acquire(
    core: Arc<Core>,
    mut request: CheckedRequest,
    caller: Caller,
) -> Result<TryAcquire<HoldHandle>, LockError> {
    core.start_here()?;
    request.wait = Some(Duration::ZERO);
    let attempt = Attempt::new(core, request);
    let wait = attempt.begin();
    let mut outcome = acquire_at_once(&attempt, &caller).await;
    if let Ok(TryAcquire::Acquired(handle)) = &mut outcome {
        let request = &attempt.request;
        handle.reach_caller(request.hold_options.renewed, request.min_hold.as_deref());
    }
    let had = |tried: &TryAcquire<_>| matches!(tried, TryAcquire::Acquired(_));
    wait.came_to(outcome.as_ref().map(had), clock::now());
    outcome
}

async fn acquire_at_once(
    attempt: &Attempt,
    caller: &Caller,
) -> Result<TryAcquire<HoldHandle>, LockError> {
    let busy = |retry_after| Ok(TryAcquire::Busy { retry_after });
    let acquired =
        |handle: HoldHandle| Ok(TryAcquire::Acquired(handle.acquired_in(caller.frame())));
    while let Some(ancestor) = ancestor(&attempt.core, &attempt.request, caller)? {
        let Some(access) = ancestor.access_now(attempt.kind()) else {
            return busy(None);
        };
        if let Some(handle) = enter_nested(attempt, &ancestor, access)? {
            return acquired(handle);
        }
    }
    attempt.core.life.check_open(attempt.key())?;
    let asked = match attempt.kind() {
        Kind::Fair => rare(fair::try_acquire(attempt)).await?,
        // Other readers of this process do not exclude it.
        Kind::Read => rare(shared::ask(attempt)).await,
        _ => local::try_acquire(attempt).await?,
    };
    match asked {
        Asked::Granted(handle) => {
            attempt.core.life.check_open(attempt.key())?;
            // A hold that was lost before its caller saw it is no hold.
            handle.hold().check()?;
            acquired(handle)
        }
        Asked::Failed(fault) => Err(attempt.error(fault)),
        Asked::Busy { left, .. } => busy(left),
    }
}

/// A hold may begin if this much of its reservation is left.
const LEAST_OF_RESERVATION: Duration = Duration::from_millis(200);

/// Returns `true` if the hold is lost already, or has too little of its lease left because this task was not run in time.
/// Its `max_hold` does not count: that of a new hold would be as short.
pub(crate) fn came_too_late(hold: &Hold, request: &CheckedRequest, now: Moment) -> bool {
    let tenure = hold.tenure();
    let rest = tenure.deadline() - now;
    // Where the store has only reserved the lock, the lease is asked for soon.
    let is_too_short = rest < request.hold_options.ttl.least_useful()
        && (rest < LEAST_OF_RESERVATION || !tenure.is_unleased());
    is_too_short
        || hold
            .known_loss()
            .is_some_and(|reason| reason != LostReason::MaxHold)
}
