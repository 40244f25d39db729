//! The layer's own metric, by the feature `metrics`. Its row is in `docs/metrics.md`.

/// The requests that a layer lets pass without a lock.
#[cfg(feature = "metrics")]
const PASSED: &str = "lock_layer_passed_total";

/// Describes the metric to the recorder. Each layer does so: a recorder that is installed later gets no description.
#[cfg(feature = "metrics")]
pub(crate) fn describe() {
    let text = "Requests that a layer let pass without a lock, because their key names none";
    metrics::describe_counter!(PASSED, metrics::Unit::Count, text);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn describe() {}

/// Counts a request that passes without a lock.
#[cfg(feature = "metrics")]
pub(crate) fn passed(label: Option<&'static str>) {
    let lock = label.unwrap_or("(unlabelled)");
    metrics::counter!(PASSED, "lock" => lock).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn passed(_: Option<&'static str>) {}
