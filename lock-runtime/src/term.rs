//! All lease arithmetic, pure: a validated lease and the times that derive from it.
//!
//! Imports nothing of the crate. Times here are durations; `clock.rs` turns them into moments.

use std::time::Duration;

/// The shortest lease: below it, a scheduling hiccup alone outlives the lease.
pub(crate) const MIN: Duration = Duration::from_millis(50);
/// The longest lease: what a crashed holder may block a key for.
pub(crate) const MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest lease that is renewed: below it the renewals themselves are the load.
pub(crate) const MIN_RENEWED: Duration = Duration::from_secs(1);

/// A lease within its bounds, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(Duration);

impl Term {
    /// Validates a lease. The error says what is wrong with it.
    pub(crate) fn new(lease: Duration, renewed: bool) -> Result<Term, &'static str> {
        if lease < MIN {
            return Err("a lease lasts 50 ms at least");
        }
        if lease > MAX {
            return Err("a lease lasts 24 h at most");
        }
        if renewed && lease < MIN_RENEWED {
            return Err(
                "a renewed lease lasts 1 s at least; shorter ones need `auto_renew(false)`",
            );
        }
        let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Ok(Term(Duration::from_millis(millis)))
    }

    pub(crate) fn ttl(self) -> Duration {
        self.0
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// What is taken off for the difference of two clocks' rates: 1 %, 10 ms at least.
    pub(crate) fn margin(self) -> Duration {
        (self.0 / 100).max(Duration::from_millis(10))
    }

    /// How long after the request was sent the holder may still believe in its hold.
    pub(crate) fn trusted(self) -> Duration {
        self.0 - self.margin()
    }

    /// The time between two renewals, and between two checks of a fixed lease.
    pub(crate) fn cadence(self) -> Duration {
        self.0 / 3
    }

    /// How much early a renewal may go out so that a batch fills.
    pub(crate) fn early(self) -> Duration {
        self.cadence() / 10
    }

    /// How long one call about this lease may take.
    pub(crate) fn call_timeout(self, configured: Duration) -> Duration {
        configured.min(self.0 / 6)
    }

    /// What a fresh acquisition must have left, or it is given back and tried again.
    pub(crate) fn least_useful(self) -> Duration {
        self.0 / 4
    }

    /// The pause before a failed renewal is tried again.
    pub(crate) fn retry_pause(self) -> Duration {
        (self.0 / 30).clamp(Duration::from_millis(5), Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn leases_out_of_bounds_are_refused() {
        for bad in [Duration::ZERO, ms(49), MAX + ms(1), Duration::MAX] {
            assert!(Term::new(bad, false).is_err(), "{bad:?}");
        }
        assert!(Term::new(ms(999), true).is_err());
        assert!(Term::new(ms(50), false).is_ok());
        assert!(Term::new(MAX, true).is_ok());
    }

    #[test]
    fn a_holder_stops_trusting_its_lease_before_the_store_ends_it() {
        for lease in [50, 51, 300, 1_000, 30_000, 86_400_000] {
            let term = Term::new(ms(lease), false).unwrap();
            assert!(term.trusted() + term.margin() == term.ttl());
            assert!(term.margin() >= ms(10) && term.margin() >= term.ttl() / 100);
            // One renewal may fail to answer and the next still arrives in time.
            assert!(term.cadence() + term.call_timeout(Duration::MAX) * 2 < term.trusted());
            assert!(term.least_useful() < term.trusted());
        }
    }

    #[test]
    fn fractions_of_a_millisecond_are_cut_not_rounded_up() {
        let term = Term::new(Duration::from_micros(50_999), false).unwrap();
        assert_eq!(term.millis(), 50);
        assert_eq!(term.ttl(), ms(50));
    }
}
