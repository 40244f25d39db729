//! Read requests. The store admits readers together, so no hold of a read owns this process's front at the key, and each asks
//! for itself. While the key is busy, readers wait in the local queue, and one asks for all. When it is admitted, all others ask.

use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::contend::{Asked, contend};
use crate::acquire::front_seat::FrontSeat;
use crate::backend::Acquired;
use crate::hold::HoldHandle;
use crate::queue::{Entered, Ticket};
use crate::values::{LockError, clock};

pub(crate) async fn acquire(attempt: &Attempt) -> Result<HoldHandle, LockError> {
    let deadline = &attempt.deadline;
    loop {
        // If there is a queue, the key was busy a moment ago. A caller that has time waits for the answer to the front.
        let asked = if !deadline.waits() || !attempt.core.queues.is_open(attempt.key()) {
            match ask(attempt).await {
                Asked::Granted(handle) => return Ok(handle),
                Asked::Busy { left, .. } if deadline.is_over() => return Err(attempt.busy(left)),
                Asked::Failed(fault) if deadline.is_over() || !fault.is_passing() => {
                    return Err(attempt.error(fault));
                }
                asked => Some(asked),
            }
        } else {
            None
        };
        let front = match attempt.enter(clock::now(), true)? {
            Entered::Front(front) => front,
            // The process never keeps a read, and this caller queues.
            Entered::Held(..) | Entered::Unsuited(..) | Entered::Behind => {
                return Err(attempt.busy(None));
            }
            Entered::Queued(waiter) => match attempt.wait_in_queue(waiter, Duration::ZERO).await? {
                Ticket::Front(front) => {
                    return FrontSeat::new(attempt, front).acquire(clock::now()).await;
                }
                Ticket::Go if deadline.is_over() => return Err(attempt.busy(None)),
                // Read holds do not own the front, and are not handed over.
                Ticket::Go | Ticket::Held(_) => continue,
            },
        };
        let Some(asked) = asked else {
            return FrontSeat::new(attempt, front).acquire(clock::now()).await;
        };
        if let Asked::Busy { .. } = &asked {
            front.heard_from_store(None);
        }
        let mut seat = FrontSeat::new(attempt, front);
        return contend(&mut seat, asked, None).await;
    }
}

/// Asks the store once, also while other callers of this process ask.
pub(crate) async fn ask(attempt: &Attempt) -> Asked<HoldHandle> {
    let mut call = attempt.call(attempt.core.ids.fresh(), clock::now(), attempt.deadline);
    let (_asking, answer) = attempt.ask(&mut call, false).await;
    match answer {
        Ok(Acquired::Granted(granted, _)) => {
            Asked::Granted(attempt.admit(None, call.hold_ref.holder, granted, None))
        }
        Ok(Acquired::Busy { left, .. }) => Asked::busy(left),
        Err(fault) => Asked::Failed(fault),
    }
}
