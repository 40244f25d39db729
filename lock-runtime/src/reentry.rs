//! Re-entry: a request under an ancestor's hold shares it, without a round trip.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::OwnedSemaphorePermit;

use crate::core::Core;
use crate::error::LockError;
use crate::kind::Kind;
use crate::lineage::{Caller, Level};
use crate::order::{Order, Patience};
use crate::share::Share;

/// The nearest ancestor that holds the lock through this manager, if the request may share its hold.
///
/// # Errors
/// [`LockError::Upgrade`] if it only reads and a write is wanted: the write would wait for its own chain.
pub(crate) fn ancestor(
    core: &Core,
    order: &Order,
    caller: &Caller,
) -> Result<Option<Arc<Level>>, LockError> {
    if !order.reentrant {
        return Ok(None);
    }
    let Some(frame) = caller.frame() else {
        return Ok(None);
    };
    let key = &order.key;
    let ancestor = frame.upward().find(|level| {
        let hold = &level.hold;
        core.ids.made(hold.holder()) && hold.key().is_of_one_lock_with(key)
    });
    // The hold of a write may have become one of a read.
    let reads =
        |level: &Arc<Level>| level.kind == Kind::Read || level.hold.key().kind() == Kind::Read;
    if key.kind() == Kind::Write && ancestor.as_ref().is_some_and(reads) {
        let name = key.name().to_owned();
        return Err(LockError::Upgrade { name });
    }
    Ok(ancestor)
}

/// Shares the hold of an ancestor, after waiting for the turn under it. `None` if the request is nested in no hold of
/// the lock any more: it was released meanwhile, or another task than the ancestor's polls the request now.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    order: &Order,
    caller: &Caller,
    patience: &Patience,
) -> Result<Option<Share>, LockError> {
    while let Some(level) = ancestor(core, order, caller)? {
        let turn = tokio::select! {
            biased;
            // Looked at before every poll of the others.
            () = until_stranger(core, order, caller, &level) => continue,
            Some(turn) = level.turn(order.key.kind()) => turn,
            () = level.hold.clone().over() => match level.hold.loss() {
                Some(reason) if !level.hold.is_left() => {
                    return Err(level.hold.lost_error(reason, false));
                }
                _ => continue,
            },
            () = patience.over() => return Err(order.busy(patience, None)),
        };
        if let Some(share) = enter_nested(core, &level, order, turn)? {
            return Ok(Some(share));
        }
    }
    Ok(None)
}

/// Resolves at the first poll at which the level is not the request's ancestor any more. Whoever changes that polls
/// the request anew.
async fn until_stranger(core: &Core, order: &Order, caller: &Caller, level: &Arc<Level>) {
    poll_fn(|_| match ancestor(core, order, caller) {
        Ok(Some(found)) if Arc::ptr_eq(&found, level) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}

/// Shares the ancestor's hold in the turn under it. `None` if it is no ancestor any more.
///
/// # Errors
/// [`LockError::Lost`] if the hold is lost.
pub(crate) fn enter_nested(
    core: &Arc<Core>,
    level: &Arc<Level>,
    order: &Order,
    turn: OwnedSemaphorePermit,
) -> Result<Option<Share>, LockError> {
    let kind = order.key.kind();
    let hold = &level.hold;
    let Some(path) = level.path(turn) else {
        return Ok(None);
    };
    let Some(longer) = hold.share(order.terms, kind)? else {
        return Ok(None);
    };
    if longer {
        core.watch.look_now(hold);
    }
    let (core, hold) = (core.clone(), hold.clone());
    Ok(Some(Share::nested(
        core,
        hold,
        kind,
        order.terms.renewed,
        path,
    )))
}
