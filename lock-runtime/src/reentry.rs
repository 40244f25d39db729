//! Re-entry: a request under an ancestor's hold shares it, without a round trip.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::core::Core;
use crate::error::LockError;
use crate::lineage::Level;
use crate::order::{Order, Patience};
use crate::share::Share;

/// The nearest level of the chain that holds the key through this manager, if the request may share it.
pub(crate) fn ancestor_with<'a>(
    core: &Core,
    order: &Order,
    head: &'a Arc<Level>,
) -> Option<&'a Arc<Level>> {
    if !order.reentrant {
        return None;
    }
    let key = &order.key;
    head.upward().find(|level| {
        let hold = &level.hold;
        core.ids.made(hold.holder()) && hold.key() == key && !hold.is_ended()
    })
}

/// Waits for the turn under an ancestor's hold. `None` if the hold was released meanwhile: then this request is
/// nested no more.
pub(crate) async fn nested(
    core: &Arc<Core>,
    ancestor: &Arc<Level>,
    order: &Order,
    patience: Patience,
) -> Result<Option<Share>, LockError> {
    let waiting = async {
        match patience.until {
            Some(until) => clock::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        Ok(turn) = ancestor.turn.clone().acquire_owned() => enter_nested(core, ancestor, order, turn),
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
    let Some(longer) = hold.share(order.terms)? else {
        return Ok(None);
    };
    if longer {
        core.watch.look_now(hold);
    }
    Ok(Some(Share::nested(
        core.clone(),
        hold.clone(),
        order.terms.renewed,
        turn,
    )))
}
