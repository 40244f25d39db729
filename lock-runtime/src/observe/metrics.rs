//! Metrics, by the feature `metrics`. Each is described, and has a row in `docs/metrics.md`.
//!
//! Locks are labelled by template or label, never by name: names hold user data and are unbounded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::observe::series::{self, HAND_OVERS, HELD, HOLD, WAIT, WAITING};
use crate::values::store::StoreKind;
use crate::values::{Kind, Label, LockError, LostReason, Moment};

/// Isolates panics in the program's log subscriber and recorder: such a panic would cost other holds their renewals, leave
/// holders unaware of a loss, or end the task that connects to the store.
pub(crate) fn apart(event: impl FnOnce()) {
    // If it panics, only its own state is left half done.
    let _ = catch_unwind(AssertUnwindSafe(event));
}

/// Logs an event [apart](apart): `logged!(warn, "…")` is `tracing::warn!("…")` with that.
macro_rules! logged {
    ($level:ident, $($event:tt)+) => { $crate::observe::metrics::apart(|| tracing::$level!($($event)+)) };
}
pub(crate) use logged;

// Without the feature, the values count as used, and are not computed.
macro_rules! count {
    ($name:ident, $times:expr, $($label:literal => $value:expr),+) => {{
        #[cfg(feature = "metrics")]
        apart(|| metrics::counter!($name, $($label => $value),+).increment($times));
        #[cfg(not(feature = "metrics"))]
        let _ = || ($name, $times, $($value,)+);
    }};
}
macro_rules! gauge {
    ($name:ident, $change:ident($value:expr), $($label:literal => $text:expr),+) => {{
        #[cfg(feature = "metrics")]
        apart(|| metrics::gauge!($name, $($label => $text),+).$change($value));
        #[cfg(not(feature = "metrics"))]
        let _ = || ($name, $value, $($text,)+);
    }};
}
/// The metrics that a lock has in each of its cycles: each is a field of its `Series`, and an operation on that.
macro_rules! of_lock {
    ($label:expr, $kind:expr, $($key:ident.$sort:ident.$change:ident($value:expr)),+) => {{
        #[cfg(feature = "metrics")]
        apart(|| {
            let series = series::of($label, $kind);
            $(series::$sort(&series.$key).$change($value);)+
        });
        #[cfg(not(feature = "metrics"))]
        let _ = || ($label, $kind, $($value,)+);
    }};
}

pub(super) const ACQUIRES: &str = "lock_acquire_total";
const OLDEST: &str = "lock_oldest_hold_seconds";
const LOST: &str = "lock_lost_total";
const RENEWALS: &str = "lock_renewals_total";
pub(super) const RELEASES: &str = "lock_releases_total";
const CONNECTED: &str = "lock_store_connected";
const RECONNECTIONS: &str = "lock_store_reconnections_total";
const CALLS: &str = "lock_store_calls_total";

/// Describes each metric to the recorder, once per manager: a recorder that is installed later gets no descriptions.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    let counter = |name, text: &'static str| describe_counter!(name, Unit::Count, text);
    let gauge = |name, text: &'static str| describe_gauge!(name, Unit::Count, text);
    let seconds = |name, text: &'static str| describe_histogram!(name, Unit::Seconds, text);
    counter(ACQUIRES, "Requests for locks, by what became of them");
    seconds(WAIT, "Time from a request for a lock to what became of it");
    seconds(HOLD, "Time from the grant of a lock to its release or loss");
    gauge(HELD, "Locks that this process holds");
    let age = "Age of the lock that this process has held longest, leaders' locks apart";
    describe_gauge!(OLDEST, Unit::Seconds, age);
    gauge(
        WAITING,
        "Requests for locks that are under way in this process",
    );
    counter(LOST, "Locks that were held and lost, by reason");
    counter(
        RENEWALS,
        "Renewals of single locks, by what the store answered",
    );
    counter(RELEASES, "Releases, by what became of them");
    counter(
        HAND_OVERS,
        "Locks that went from one caller of this process to the next",
    );
    #[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
    {
        gauge(CONNECTED, "Connections for requests that are up");
        counter(
            RECONNECTIONS,
            "Connections that were opened again after one was lost",
        );
        let calls = "Calls of scripts or statements, by name and by whether the server answered";
        counter(CALLS, calls);
    }
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn describe() {}

/// A request for a lock is under way, until [`asked`] counts its outcome.
pub(crate) fn asking(label: Label, kind: Kind) {
    of_lock!(label, kind, waiting.gauge.increment(1.0));
}

pub(crate) fn asked(label: Label, kind: Kind, waited: Duration, outcome: &'static str) {
    of_lock!(
        label,
        kind,
        waiting.gauge.decrement(1.0),
        wait.histogram.record(waited)
    );
    match outcome {
        "acquired" => of_lock!(label, kind, acquired.counter.increment(1)),
        _ => {
            count!(ACQUIRES, 1, "lock" => label.lock, "kind" => kind.name(), "store" => label.store, "outcome" => outcome)
        }
    }
}

/// A hold has begun.
pub(crate) fn held(label: Label, kind: Kind) {
    of_lock!(label, kind, held.gauge.increment(1.0));
}

/// A hold has ended, by its release or by a loss. `kind`: as it began.
pub(crate) fn ended(label: Label, kind: Kind, held_for: Duration) {
    of_lock!(
        label,
        kind,
        held.gauge.decrement(1.0),
        hold.histogram.record(held_for)
    );
}

pub(crate) fn lost(label: Label, kind: Kind, reason: LostReason) {
    let reason = match reason {
        LostReason::Expired => "expired",
        LostReason::Refused => "refused",
        LostReason::ForceReleased => "force_released",
        LostReason::MaxHold => "max_hold",
        LostReason::Shutdown => "shutdown",
    };
    count!(LOST, 1, "lock" => label.lock, "kind" => kind.name(), "store" => label.store, "reason" => reason);
}

/// `granted_at` finds when the oldest hold began, if there is one.
pub(crate) fn oldest(store: &'static str, granted_at: impl FnOnce() -> Option<Moment>) {
    let age = |moment: Moment| moment.elapsed().as_secs_f64();
    gauge!(OLDEST, set(granted_at().map_or(0.0, age)), "store" => store);
}

/// Counts the holds that got this answer to their renewals.
pub(crate) fn renewals(store: &'static str, outcome: &'static str, holds: usize) {
    count!(RENEWALS, holds as u64, "store" => store, "outcome" => outcome);
}

pub(crate) fn released(label: Label, kind: Kind, outcome: &Result<(), LockError>) {
    let outcome = match outcome {
        Ok(()) => return of_lock!(label, kind, released.counter.increment(1)),
        Err(LockError::Lost { .. }) => "lost",
        Err(_) => "failed",
    };
    count!(RELEASES, 1, "lock" => label.lock, "kind" => kind.name(), "store" => label.store, "outcome" => outcome);
}

pub(crate) fn handed_over(label: Label, kind: Kind) {
    of_lock!(label, kind, handed_over.counter.increment(1));
}

/// A connection for requests that is up, until this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    store: StoreKind,
}

impl Connection {
    /// `again`: another connection was lost before it.
    pub(crate) fn is_up(store: StoreKind, again: bool) -> Connection {
        gauge!(CONNECTED, increment(1.0), "store" => store.name());
        if again {
            count!(RECONNECTIONS, 1, "store" => store.name());
        }
        Connection { store }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        gauge!(CONNECTED, decrement(1.0), "store" => self.store.name());
    }
}

/// A script was called, or a statement.
pub(crate) fn called(store: StoreKind, script: &'static str, is_answered: bool) {
    let outcome = if is_answered {
        "answered"
    } else {
        "unanswered"
    };
    count!(CALLS, 1, "store" => store.name(), "script" => script, "outcome" => outcome);
}
