//! Events and metrics, all in one place. Metrics are labelled by template or label, never by full name: names hold
//! user data and are unbounded. Holder ids and passwords appear nowhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::backend::Fault;
use crate::clock::Moment;
use crate::error::{LockError, LostReason};

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $($label:literal => $value:expr),+) => {
        metrics::counter!($name, $($label => $value),+).increment(1)
    };
}
#[cfg(feature = "metrics")]
macro_rules! time {
    ($name:literal, $value:expr, $($label:literal => $text:expr),+) => {
        metrics::histogram!($name, $($label => $text),+).record($value.as_secs_f64())
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($name:literal, $($label:literal => $value:expr),+) => {{ let _ = ($($value,)+); }};
}
#[cfg(not(feature = "metrics"))]
macro_rules! time {
    ($name:literal, $value:expr, $($label:literal => $text:expr),+) => {{ let _ = || ($value, $($text,)+); }};
}

/// `since`: when the caller came. Nobody reads a clock for an event that nobody takes.
pub(crate) fn acquired(label: &'static str, name: &str, since: Moment) {
    tracing::debug!(lock = name, label, waited = ?since.elapsed(), "lock acquired");
    count!("lock_acquire_total", "lock" => label, "outcome" => "acquired");
    time!("lock_wait_seconds", since.elapsed(), "lock" => label);
}

pub(crate) fn busy(label: &'static str, waited: Duration) {
    count!("lock_acquire_total", "lock" => label, "outcome" => "busy");
    time!("lock_wait_seconds", waited, "lock" => label);
}

pub(crate) fn ended(label: &'static str, since: Moment) {
    time!("lock_hold_seconds", since.elapsed(), "lock" => label);
}

/// Calls what is not ours, a log subscriber or a recorder, where a panic of its would cost other holds their renewals,
/// or keep their holders from being told.
fn apart(event: impl FnOnce()) {
    // What it leaves half done is its own.
    let _ = catch_unwind(AssertUnwindSafe(event));
}

pub(crate) fn lost(label: &'static str, name: &str, reason: LostReason, held_for: Duration) {
    apart(|| {
        tracing::warn!(lock = name, label, ?held_for, %reason, "lock lost");
        count!("lock_lost_total", "lock" => label, "reason" => reason_text(reason));
    });
}

/// The lock was handed over to a caller that did not take it in time. Nobody lost anything.
pub(crate) fn never_claimed(label: &'static str, name: &str, held_for: Duration) {
    apart(|| {
        tracing::warn!(
            lock = name,
            label,
            ?held_for,
            "a lock was handed over to a caller whose future was not polled, and its lease ended unused: poll the \
             futures of `acquire` until they are ready, or drop them"
        );
    });
}

fn reason_text(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "expired",
        LostReason::Refused => "refused",
        LostReason::ForceReleased => "force_released",
        LostReason::MaxHold => "max_hold",
        LostReason::Shutdown => "shutdown",
    }
}

pub(crate) fn handed_over(label: &'static str) {
    count!("lock_hand_overs_total", "lock" => label);
}

pub(crate) fn renewal_failed(holds: usize, fault: &Fault) {
    apart(|| {
        tracing::warn!(holds, %fault, "renewal failed; it is repeated until the holds run out");
        count!("lock_renewals_failed_total", "outcome" => "unknown");
    });
}

pub(crate) fn renewed() {
    apart(|| count!("lock_renewal_calls_total", "outcome" => "answered"));
}

pub(crate) fn release_failed(label: &'static str, error: &LockError) {
    tracing::warn!(label, %error, "release failed");
}

pub(crate) fn undo_refused(name: &str, fault: &Fault) {
    tracing::warn!(
        lock = name,
        reason = %fault,
        "the store refuses to give back a place in a queue, or what a lost lock may have left: it ends by itself"
    );
}

pub(crate) fn lost_after_completion(loss: &LockError) {
    tracing::warn!(error = %loss, "the lock was lost before its release, but the body had completed");
}

pub(crate) fn did_not_run(error: &LockError) {
    tracing::error!(%error, "a function under `on_busy = skip` did not run, or not to its end");
}

pub(crate) fn long_local_wait(name: &str, label: &'static str, holder: &'static str) {
    tracing::warn!(
        lock = name,
        waiting = label,
        holder,
        "waited over 1 s for a lock that this process itself holds; if the holder awaits this very call, the two \
         deadlock: run it inside the hold (`run`, `scope`) so that it re-enters"
    );
}

pub(crate) fn watchdog_restarted() {
    apart(|| tracing::error!("the lock watchdog panicked and was restarted"));
}
