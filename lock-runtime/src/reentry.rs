//! Re-entry: a request under an ancestor's hold shares it, without a round trip.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::core::Core;
use crate::error::LockError;
use crate::kind::Kind;
use crate::lineage::Level;
use crate::order::{Order, Patience};
use crate::share::Share;

/// The nearest level of the chain that holds the lock through this manager, if the request may share it.
///
/// # Errors
/// [`LockError::Upgrade`] if it only reads and a write is wanted: the write would wait for its own chain.
pub(crate) fn ancestor_with<'a>(
    core: &Core,
    order: &Order,
    head: &'a Arc<Level>,
) -> Result<Option<&'a Arc<Level>>, LockError> {
    if !order.reentrant {
        return Ok(None);
    }
    let key = &order.key;
    let ancestor = head.upward().find(|level| {
        let hold = &level.hold;
        core.ids.made(hold.holder())
            && hold.key().is_of_one_lock_with(key)
            && !hold.is_ended()
            // A write whose guard is gone is no ancestor any more, though a read that it admitted may live on.
            && (level.kind == Kind::Read || key.kind() == Kind::Read || hold.key().kind() == key.kind())
    });
    if ancestor.is_some_and(|level| level.kind == Kind::Read && key.kind() == Kind::Write) {
        let name = key.name().to_owned();
        return Err(LockError::Upgrade { name });
    }
    Ok(ancestor)
}

/// The part of an ancestor's turn that a request takes, if it is free.
pub(crate) fn turn_now(ancestor: &Level, order: &Order) -> Option<OwnedSemaphorePermit> {
    let part = Level::part_of_turn(order.key.kind());
    ancestor.turn.clone().try_acquire_many_owned(part).ok()
}

/// Waits for the turn under an ancestor's hold. `None` if the hold was released meanwhile: then this request is
/// nested no more.
pub(crate) async fn nested(
    core: &Arc<Core>,
    ancestor: &Arc<Level>,
    order: &Order,
    patience: &Patience,
) -> Result<Option<Share>, LockError> {
    let part = Level::part_of_turn(order.key.kind());
    let waiting = async {
        match patience.until {
            Some(until) => clock::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        Ok(turn) = ancestor.turn.clone().acquire_many_owned(part) => enter_nested(core, ancestor, order, turn),
        () = ancestor.hold.clone().over() => match ancestor.hold.loss() {
            Some(reason) => Err(ancestor.hold.lost_error(reason, false)),
            None => Ok(None),
        },
        () = waiting => Err(order.busy(patience, None)),
    }
}

pub(crate) fn enter_nested(
    core: &Arc<Core>,
    ancestor: &Arc<Level>,
    order: &Order,
    turn: OwnedSemaphorePermit,
) -> Result<Option<Share>, LockError> {
    let hold = &ancestor.hold;
    let Some(longer) = hold.share(order.terms, order.key.kind())? else {
        return Ok(None);
    };
    if longer {
        core.watch.look_now(hold);
    }
    Ok(Some(Share::nested(
        core.clone(),
        hold.clone(),
        order.key.kind(),
        order.terms.renewed,
        turn,
    )))
}
