//! Events, and in `metrics` the metrics: all reports about locks, in one place. Holder ids and passwords appear
//! nowhere.

use std::time::Duration;

use crate::backend::Fault;
use crate::hold::Loss;
use crate::values::{Key, Label, LockError, LostReason};

pub(crate) mod metrics;
#[cfg(feature = "metrics")]
mod series;
pub(crate) mod spans;
#[cfg(all(test, feature = "metrics"))]
pub(crate) mod sums;

use self::metrics::logged;

pub(crate) fn lost(key: &Key, loss: &Loss) {
    let (lock, label, held_for) = (key.name(), loss.label.lock, loss.held_for);
    logged!(warn, lock, label, ?held_for, reason = %loss.reason, "lock lost");
}

/// A lock was handed over to a caller that did not take it within the lease. No caller lost anything.
pub(crate) fn never_claimed(key: &Key, loss: &Loss) {
    let (lock, label, held_for) = (key.name(), loss.label.lock, loss.held_for);
    logged!(
        warn,
        lock,
        label,
        ?held_for,
        "a lock was handed over to a caller whose future was not polled, and its lease ended unused: poll the futures of \
         `acquire` until they are ready, or drop them"
    );
}

pub(crate) fn renewal_failed(holds: usize, fault: &Fault) {
    logged!(warn, holds, %fault, "renewal failed; it is repeated until the holds run out");
}

pub(crate) fn renewal_unanswered(holds: usize, after: Duration) {
    logged!(
        warn,
        holds,
        ?after,
        "no answer to a renewal yet; it counts when it comes, and a store that is silent is asked again"
    );
}

pub(crate) fn renewal_panicked() {
    logged!(
        error,
        "a renewal panicked; its holds are renewed by the next one"
    );
}

/// The common part of events that are logged once, and then counted for a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Lost(LostReason),
    /// Leases ended before the callers that the locks were handed over to took them.
    NeverClaimed,
    /// Holds were lost because the watchdog itself did not run.
    Starved,
    /// A renewal failed.
    Failed,
    /// A renewal is not answered yet.
    Unanswered,
    /// A renewal panicked.
    Panicked,
    /// A release failed, and no caller hears of it.
    ReleaseFailed,
    /// The store refuses to undo something.
    UndoRefused,
}

/// Logs the number of holds that the watchdog counted in a second in which it had already logged one of this cause.
pub(crate) fn more_of(cause: Cause, holds: usize) {
    let what = match cause {
        Cause::Lost(reason) => {
            return logged!(warn, holds, %reason, "more locks lost within a second");
        }
        Cause::Panicked => {
            return logged!(
                error,
                calls = holds,
                "more renewals panicked within a second"
            );
        }
        Cause::NeverClaimed => "more locks ended within a second without their callers",
        Cause::Starved => "more locks lost within a second while the watchdog did not run",
        Cause::Failed => "renewals of more holds failed within a second",
        Cause::Unanswered => "renewals of more holds without an answer within a second",
        Cause::ReleaseFailed => "more releases failed within a second",
        Cause::UndoRefused => "the store refused within a second to undo requests for more locks",
    };
    logged!(warn, holds, "{what}");
}

/// The watchdog itself did not run, and leases ran out meanwhile.
pub(crate) fn watchdog_late(late: Duration) {
    logged!(
        warn,
        ?late,
        "a lock was lost because the watchdog did not run: this process got no CPU, its runtime was blocked, or the \
         machine was suspended"
    );
}

/// A release has come to its end. If it finds the lock lost, it reports a loss that was not counted yet: a hold that is
/// known to be lost is not released.
pub(crate) fn released(key: &Key, label: Label, outcome: &Result<(), LockError>) {
    metrics::released(label, key.kind(), outcome);
    match outcome {
        Ok(()) => {
            let (lock, label) = (key.name(), label.lock);
            logged!(debug, lock, label, "lock released");
        }
        Err(LockError::Lost { reason, .. }) => metrics::lost(label, key.kind(), *reason),
        Err(_) => {}
    }
}

/// Counts what the store answered to renewals: still held, not held any more, nothing that can be relied on, or nothing
/// about this hold.
pub(crate) fn renewals(store: &'static str, answers: [usize; 4]) {
    let outcomes = ["held", "refused", "unknown", "left_out"];
    for (outcome, holds) in outcomes.into_iter().zip(answers) {
        if holds > 0 {
            metrics::renewals(store, outcome, holds);
        }
    }
}

pub(crate) fn release_failed(label: &'static str, error: &LockError) {
    logged!(warn, label, %error, "release failed");
}

/// The runtime ended while a release was under way in the background.
pub(crate) fn release_cut_off(key: &Key, label: Label, left: Duration) {
    let (lock, label) = (key.name(), label.lock);
    logged!(
        warn,
        lock,
        label,
        ?left,
        "the runtime ended before a lock was given back: its key may stay until its lease is over; await `release` or \
         the manager's `shutdown` before the runtime ends"
    );
}

pub(crate) fn undo_refused(name: &str, fault: &Fault) {
    logged!(
        warn,
        lock = name,
        reason = %fault,
        "the store refuses to give back a place in a queue, or what a lost lock may have left: it ends by itself"
    );
}

pub(crate) fn refused_for_now(name: &str, fault: &Fault) {
    logged!(
        warn,
        lock = name,
        reason = %fault,
        "the lock store refuses what it served before: those who wait go on asking until their time is over"
    );
}

pub(crate) fn lost_after_completion(loss: &LockError) {
    logged!(warn, error = %loss, "the lock was lost before its release, but the body had completed");
}

pub(crate) fn did_not_run(error: &LockError) {
    logged!(error, %error, "a function under `on_busy = skip` did not run, or not to its end");
}

pub(crate) fn long_local_wait(name: &str, label: &'static str, holder: &'static str) {
    logged!(
        warn,
        lock = name,
        waiting = label,
        holder,
        "waited over 1 s for a lock that this process itself holds; if the holder awaits this very call, the two \
         deadlock: run it inside the hold (`run`, `scope`) so that it re-enters"
    );
}

/// `panics`: how many there were in a row.
pub(crate) fn watchdog_restarted(panics: u64) {
    logged!(
        error,
        panics,
        "the lock watchdog panicked; it is started again after a pause"
    );
}
