//! A measure of the time that a request takes.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_is_the_average_and_each_later_one_moves_it_by_an_eighth() {
        let trip = RoundTrip::default();
        assert_eq!(trip.average(), Duration::ZERO);
        trip.took(Duration::from_micros(800));
        assert_eq!(trip.average(), Duration::from_micros(800));
        trip.took(Duration::from_micros(1_600));
        assert_eq!(trip.average(), Duration::from_micros(900));
        trip.took(Duration::ZERO);
        assert!(trip.average() < Duration::from_micros(800));
    }
}
