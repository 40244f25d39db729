//! How long a request takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// In µs, an exponentially weighted average; 0 before the first sample.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip(AtomicU64);

impl RoundTrip {
    pub(crate) fn average(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Two samples at once may lose one of them, which does no harm.
    pub(crate) fn took(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_micros()).unwrap_or(u64::MAX);
        let average = match self.0.load(Ordering::Relaxed) {
            0 => sample,
            average => average - average / 8 + sample / 8,
        };
        self.0.store(average.max(1), Ordering::Relaxed);
    }
}
