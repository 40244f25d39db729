//! Read requests. The store admits readers together, so none of them owns this process's turn at the key: each asks
//! for itself. Only while the key is busy do they queue, and one of them asks for all; when it is admitted, all go.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Acquired;
use crate::clock;
use crate::core::Core;
use crate::error::LockError;
use crate::gate::{Entry, Turn};
use crate::order::{Order, Patience};
use crate::share::Share;
use crate::wait::{Asked, Head, ask_as, at_the_head, contend, queue};

pub(crate) async fn acquire(
    core: &Arc<Core>,
    order: &Order,
    patience: &Patience,
) -> Result<Share, LockError> {
    let at_once = order.wait == Some(Duration::ZERO);
    loop {
        // A queue says that the key was busy a moment ago: who has the time waits for its head's answer.
        let seen = if at_once || !core.gates.is_open(&order.key) {
            match ask(core, order, patience).await {
                Asked::Held(share) => return Ok(share),
                Asked::Busy(left) if patience.is_over() => return Err(order.busy(patience, left)),
                Asked::Failed(fault) if patience.is_over() || !fault.is_passing() => {
                    return Err(fault.into_error(order.key.name()));
                }
                seen => Some(seen),
            }
        } else {
            None
        };
        let place = match core.gates.enter(&order.key, order.terms)? {
            Entry::Head(place) => place,
            Entry::Queued(ticket) => {
                match queue(ticket, order, patience, core.options.call_timeout).await? {
                    Turn::Head(place) => {
                        return at_the_head(core, place, order, patience, clock::now()).await;
                    }
                    // Holds of readers do not own the turn, and are not handed over.
                    Turn::Held(_) => continue,
                    Turn::Go if patience.is_over() && !at_once => {
                        return Err(order.busy(patience, None));
                    }
                    Turn::Go => continue,
                }
            }
        };
        let Some(seen) = seen else {
            return at_the_head(core, place, order, patience, clock::now()).await;
        };
        if let Asked::Busy(_) = &seen {
            place.heard_from_store(None);
        }
        return contend(core, Head(Some(place)), order, patience, seen).await;
    }
}

/// Asks the store once, whoever else of this process does.
pub(crate) async fn ask(core: &Arc<Core>, order: &Order, patience: &Patience) -> Asked {
    let holder = core.ids.fresh();
    let (_asking, answer) = ask_as(core, order, patience, holder, clock::now()).await;
    match answer {
        Ok(Acquired::Granted(granted)) => {
            let (key, terms) = (&order.key, order.terms);
            Asked::Held(Share::admit(core, key, None, holder, terms, granted))
        }
        Ok(Acquired::Busy { left } | Acquired::Queued { left, .. }) => Asked::Busy(left),
        Err(fault) => Asked::Failed(fault),
    }
}
