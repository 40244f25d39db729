//! A measure of the time that a request takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time in µs that a recent request took; 0 before the first sample.
///
/// The value falls fast and rises slowly, because it estimates the way to the store and back: a process that is busy
/// with hand-overs reads its answers late.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip(AtomicU64);

impl RoundTrip {
    pub(crate) fn recent(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Two samples at the same time may lose one of them, which does no harm.
    pub(crate) fn took(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_micros()).unwrap_or(u64::MAX);
        let recent = match self.0.load(Ordering::Relaxed) {
            0 => sample,
            before if sample < before => before - (before - sample) / 2,
            before => before + (sample - before) / 8,
        };
        self.0.store(recent.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_moves_it_by_an_eighth_and_a_fast_one_by_half() {
        let trip = RoundTrip::default();
        let recent = |sample| {
            trip.took(Duration::from_micros(sample));
            trip.recent().as_micros()
        };
        assert_eq!(recent(800), 800, "the first sample");
        assert_eq!(recent(1_600), 900);
        assert_eq!(recent(100), 500);
        assert_eq!(recent(0), 250);
    }
}
