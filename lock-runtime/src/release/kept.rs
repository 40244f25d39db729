//! A lock that stays with this process between its holds (`keep_for`), and how it is given back in the end.

use std::sync::Arc;

use super::Departure;
use crate::backend::{Granted, TenureTerms};
use crate::hold::{Core, Hold, Kept, current_runtime};
use crate::queue::Head;
use crate::queue::handoff_budget::HandoffBudget;
use crate::values::{HoldOptions, HolderId, Kind, LostReason, Moment, SPARE_TOKENS, clock};

/// How many numbers of a counted fence are set aside: what nobody takes is a gap that people see.
const SPARE_COUNTS: u64 = 100;

/// Returns the number of tokens to set aside for the next holds.
pub(super) fn spare_tokens(kind: Kind) -> u64 {
    match kind {
        Kind::Fenced => SPARE_COUNTS,
        _ => SPARE_TOKENS,
    }
}

/// The store has just made `holder` the one that has the lock for nobody. It is kept, unless somebody waits for it.
pub(super) fn keep(
    core: &Arc<Core>,
    head: Head,
    holder: HolderId,
    options: HoldOptions,
    granted: Granted,
    terms: TenureTerms,
) {
    let TenureTerms { strangers, spare } = terms;
    let (key, now) = (head.key().clone(), clock::now());
    let kept = Kept::new(core, &key, holder, options, granted, spare, now);
    core.watch.insert(&kept.idle, granted.sent_at);
    let is_wanted = strangers.is_some_and(|strangers| strangers > 0);
    head.budget(|budget| match is_wanted {
        true => budget.is_wanted(now),
        false => budget.keeps(options.keep_for.unwrap_or_default(), now),
    });
    if is_wanted || !core.life.is_open() {
        give_back(core, head, kept.idle);
        return;
    }
    if let Err((head, idle)) = stay(core, head, kept, now) {
        give_back(core, head, idle);
    }
}

/// Leaves the key to the idle hold, which the watchdog knows by now. Both come back if somebody of this process waits, or
/// others are to have a chance.
pub(super) fn stay(
    core: &Arc<Core>,
    head: Head,
    kept: Kept,
    now: Moment,
) -> Result<(), (Head, Arc<Hold>)> {
    let idle = kept.idle.clone();
    match head.leave_to(kept, now) {
        Err((head, kept)) => Err((head, kept.idle)),
        // It may have ended before it was in the queue, where its end looks for it.
        Ok(()) if idle.known_loss().is_some() => match core.queues.take_kept(&idle) {
            Some((head, _)) => Err((head, idle)),
            None => Ok(()),
        },
        Ok(()) => Ok(()),
    }
}

/// The lock has been given back, and the turn at its key goes on: after a while, if others are to have it first.
pub(super) fn turn_goes_on(core: &Core, head: Head, now: Moment) {
    let round_trip = core.backend.round_trip(head.key());
    let alone = head.budget(|budget| budget.leave_alone(round_trip, now));
    if let Some(alone) = alone.flatten() {
        // A shutdown need not wait for it.
        core.life.spawn_uncounted(async move {
            // Outside of a runtime there are no timers, and nobody to wait for.
            if current_runtime().is_ok() {
                clock::sleep(alone).await;
            }
            drop(head);
        });
    }
}

/// The idle hold is over: nobody of this process came in time, somebody else asked for the lock, or it was lost.
pub(crate) fn ended(core: &Arc<Core>, idle: &Hold) {
    if let Some((head, kept)) = core.queues.take_kept(idle) {
        head.budget(HandoffBudget::rests);
        give_back(core, head, kept.idle);
    }
}

/// Gives the lock back, or hands it over to the next local waiter. In the background.
pub(crate) fn give_back(core: &Arc<Core>, head: Head, idle: Arc<Hold>) {
    core.watch.remove(&idle);
    let reason = idle.known_loss();
    if matches!(
        reason,
        Some(LostReason::Refused | LostReason::ForceReleased)
    ) {
        // The store has said so: nothing is left to give back.
        return;
    }
    let mut departure = Departure::new(core.clone(), idle, Some(head), clock::now(), None, None);
    departure.in_background = true;
    core.life.spawn(departure.in_background(None));
}

/// Gives back all that the manager keeps: it closes.
pub(crate) fn give_back_all(core: &Arc<Core>) {
    for (head, kept) in core.queues.take_all_kept() {
        give_back(core, head, kept.idle);
    }
}

/// The last manager and the last guard are gone. Each lock is given back by one request; one that is not answered is left
/// to the lease.
pub(crate) fn give_back_at_the_end(core: &Core) {
    for (_, kept) in core.queues.take_all_kept() {
        core.watch.remove(&kept.idle);
        let (backend, timeout) = (core.backend.clone(), core.options.call_timeout);
        core.life.spawn_uncounted(async move {
            let _ = backend.release(kept.idle.hold_ref(), timeout).await;
        });
    }
}
