//! A lock that stays with this process between its turns: for `keep_for`, or until the release of a dropped guard is sent. How
//! an idle time begins, and how it ends.

use std::sync::Arc;

use super::TenureRelease;
use crate::backend::{FurtherTurns, Granted};
use crate::hold::{Core, Left, Next, Share, Tenure, Turn, TurnAllowance};
use crate::observe;
use crate::queue::Front;
use crate::queue::slice::Slice;
use crate::values::{HoldOptions, HolderId, LostReason, Moment, clock};

/// The number of tokens that are reserved for the next holds of a kept lock whose tokens count holds: an unused token is a
/// gap that people see.
pub(super) const SPARE_COUNTS: u64 = 100;

/// Keeps the lock, which the store has just given to `holder` and so to no caller, unless a caller or a process waits for it.
pub(super) fn keep(
    core: &Arc<Core>,
    front: Front,
    holder: HolderId,
    options: HoldOptions,
    granted: Granted,
    terms: FurtherTurns,
) {
    let FurtherTurns { others, spare } = terms;
    // The grant is believed from the moment of its request on, so its time cannot be over yet.
    let (key, now) = (front.key().clone(), granted.sent_at);
    front.slice(|slice| slice.keeps(options.keep_for.unwrap_or_default(), now));
    let of = Arc::downgrade(core);
    let allowance = TurnAllowance::new(spare, None);
    let hold = Tenure::begin(of, key, Some(front), holder, &options, granted, allowance);
    let tenure = hold.tenure();
    if others.is_some_and(|others| others > 0) {
        tenure.give_up();
    }
    // This turn ends at once. The code after it decides as after any other turn.
    let share = Share {
        kind: tenure.first_kind(),
        renewed: false,
        returns: false,
    };
    match hold.leave(core, share, now) {
        // A caller may have taken it already, and even given it back.
        Left::Last(_, Next::Idle(_)) => core.watch.insert(tenure, granted.sent_at),
        Left::Last(turn, Next::Release) => give_back(core, tenure.clone(), turn, now),
        // No other code knows the tenure yet, and its reserved tokens are not for waiters.
        Left::Last(_, Next::Turn(..)) | Left::Shared | Left::Reading(_) | Left::Lost { .. } => {}
    }
}

/// Ends an idle time: no caller came in time, another process asked for the lock, or the lock was lost. `turn` has the front.
pub(crate) fn ended(core: &Arc<Core>, tenure: &Arc<Tenure>, turn: Turn, reason: LostReason) {
    core.watch.remove(tenure);
    core.queues.idles_no_more(tenure, false);
    if let Some(front) = &turn.front {
        front.slice(Slice::note_unused);
    }
    match reason {
        // The store has no hold any more that could be given back.
        LostReason::Refused | LostReason::ForceReleased => {}
        _ => give_back(core, tenure.clone(), turn, clock::now()),
    }
}

/// Gives the lock back after a guard was dropped, unless a caller of this process has come before it runs.
pub(super) struct AfterDrop(Option<(Arc<Core>, Arc<Tenure>)>);

impl AfterDrop {
    pub(super) fn new(core: &Arc<Core>, tenure: &Arc<Tenure>) -> AfterDrop {
        AfterDrop(Some((core.clone(), tenure.clone())))
    }

    pub(super) async fn run(mut self) {
        if let Some((core, tenure)) = self.0.take() {
            let now = clock::now();
            if let Some(turn) = tenure.ends_now(now) {
                core.queues.idles_no_more(&tenure, true);
                give_back(&core, tenure, turn, now);
            }
        }
    }
}

impl Drop for AfterDrop {
    /// The runtime has ended before.
    fn drop(&mut self) {
        if let Some((_, tenure)) = self.0.take()
            && let Some(turn) = tenure.ends_now(clock::now())
        {
            let left = tenure.deadline().remaining();
            observe::release_cut_off(tenure.key(), turn.label, left);
        }
    }
}

/// Gives the lock back after an idle time, or hands it over to the next local waiter, in the background.
pub(crate) fn give_back(core: &Arc<Core>, tenure: Arc<Tenure>, turn: Turn, now: Moment) {
    core.watch.remove(&tenure);
    TenureRelease::new(core, tenure, turn, now).spawn(None);
}

/// Gives back all locks that the manager keeps, because it closes.
pub(crate) fn give_back_all(core: &Arc<Core>) {
    let now = clock::now();
    for (tenure, turn) in core.queues.end_all_idle(now) {
        give_back(core, tenure, turn, now);
    }
}

/// Gives back all kept locks after the last manager and the last guard were dropped. Each lock gets one request; if that is
/// not answered, the lease ends the lock.
pub(crate) fn give_back_at_the_end(core: &Core) {
    for (tenure, _) in core.queues.end_all_idle(clock::now()) {
        core.watch.remove(&tenure);
        let (backend, timeout) = (core.backend.clone(), core.options.call_timeout);
        core.life.spawn_uncounted(async move {
            let _ = backend.release(tenure.hold_ref(), timeout).await;
        });
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
