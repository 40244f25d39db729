//! Re-entry: a request under an ancestor's hold shares it, without a round trip.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::OwnedSemaphorePermit;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::CheckedRequest;
use crate::hold::{Caller, Core, Held, HoldHandle, Level};
use crate::values::{Kind, LockError};

/// Returns the nearest ancestor that holds the lock through this manager, if the request may share its hold.
///
/// # Errors
/// [`LockError::Upgrade`] if the ancestor only reads and the request is a write: the write would wait for its own chain.
pub(crate) fn ancestor(
    core: &Core,
    request: &CheckedRequest,
    caller: &Caller,
) -> Result<Option<Arc<Level>>, LockError> {
    if !request.reentrant {
        return Ok(None);
    }
    let Some(frame) = caller.frame() else {
        return Ok(None);
    };
    let key = &request.key;
    let ancestor = frame.upward().find(|level| {
        let hold = &level.hold;
        core.ids.made(hold.holder()) && hold.key().is_of_one_lock_with(key)
    });
    if key.kind() == Kind::Write && ancestor.as_ref().is_some_and(|level| level.reads()) {
        let name = key.name().to_owned();
        return Err(LockError::Upgrade { name });
    }
    Ok(ancestor)
}

/// Waits for the access under an ancestor, and shares its hold. Returns `None` if the request is not nested in a hold of the
/// lock any more: the hold was released, or another task than the ancestor's polls the request now.
pub(crate) async fn acquire(
    attempt: &Attempt,
    caller: &Caller,
) -> Result<Option<HoldHandle>, LockError> {
    let Attempt {
        core,
        request,
        deadline,
    } = attempt;
    while let Some(level) = ancestor(core, request, caller)? {
        let access = tokio::select! {
            biased;
            // It is checked before each poll of the other branches.
            () = until_stranger(attempt, caller, &level) => continue,
            Some(access) = level.access(attempt.kind()) => access,
            () = Held::One(level.hold.clone()).over() => match level.hold.loss() {
                Some(loss) if !level.hold.is_left() => {
                    return Err(level.hold.lost_error(loss));
                }
                _ => continue,
            },
            () = deadline.over() => return Err(attempt.busy(None)),
        };
        if let Some(handle) = enter_nested(attempt, &level, access)? {
            return Ok(Some(handle));
        }
    }
    Ok(None)
}

/// Resolves at the first poll at which the level is not the request's ancestor any more. The task that changes that also polls
/// the request.
async fn until_stranger(attempt: &Attempt, caller: &Caller, level: &Arc<Level>) {
    poll_fn(
        |_| match ancestor(&attempt.core, &attempt.request, caller) {
            Ok(Some(found)) if Arc::ptr_eq(&found, level) => Poll::Pending,
            _ => Poll::Ready(()),
        },
    )
    .await;
}

/// Shares the ancestor's hold in the access under it. Returns `None` if it is not an ancestor any more.
///
/// # Errors
/// [`LockError::Lost`] if the hold is lost.
pub(crate) fn enter_nested(
    attempt: &Attempt,
    level: &Arc<Level>,
    access: OwnedSemaphorePermit,
) -> Result<Option<HoldHandle>, LockError> {
    let (kind, hold) = (attempt.kind(), &level.hold);
    let Some(path) = level.path(access) else {
        return Ok(None);
    };
    let options = attempt.request.hold_options;
    let Some(longer) = hold.share(options, kind)? else {
        return Ok(None);
    };
    if longer {
        attempt.core.watch.look_now(hold.tenure());
    }
    let (core, hold) = (attempt.core.clone(), hold.clone());
    let counted = core.life.under_way.enter();
    let handle = HoldHandle::new(core, hold, kind, Some(path), counted);
    Ok(Some(handle))
}
