//! The pause between two tries: it doubles up to a longest one, and chance lengthens or shortens it.
//!
//! Chance matters: clients that fail in one instant would otherwise all come back in one instant.

use std::time::Duration;

/// The pauses of one loop of tries.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Chance changes the first and the longest pause as well: see [`jittered`].
    pub(crate) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            next: first.min(longest),
        }
    }

    /// Begins as if this number of pauses were over.
    pub(crate) fn after(mut self, pauses: u32) -> Backoff {
        let factor = 1_u32.checked_shl(pauses).unwrap_or(u32::MAX);
        self.next = self.first.saturating_mul(factor).min(self.longest);
        self
    }

    /// Returns the pause before the next try.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        jittered(pause)
    }

    /// A try went well: the next pause is the first one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first.min(self.longest);
    }
}

/// Half to one and a half of the pause, by chance.
pub(crate) fn jittered(pause: Duration) -> Duration {
    spread(pause, fastrand::f64())
}

/// `chance` is from 0 to 1.
fn spread(pause: Duration, chance: f64) -> Duration {
    // A pause of some 10^19 s cannot be longer.
    Duration::try_from_secs_f64(pause.as_secs_f64() * (0.5 + chance)).unwrap_or(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(100);

    fn assert_about(pause: Duration, millis: u64) {
        let mean = Duration::from_millis(millis);
        assert!(
            pause >= mean / 2 && pause <= mean * 3 / 2,
            "{pause:?} is not about {mean:?}"
        );
    }

    #[test]
    fn pauses_double_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        for mean in [20, 40, 80, 100, 100] {
            assert_about(backoff.pause(), mean);
        }
        backoff.reset();
        assert_about(backoff.pause(), 20);
        assert_about(backoff.pause(), 40);
    }

    #[test]
    fn a_backoff_that_begins_late_goes_on_from_there() {
        for (pauses, mean) in [(0, 20), (1, 40), (2, 80), (3, 100), (31, 100), (99, 100)] {
            let mut backoff = Backoff::new(FIRST, LONGEST).after(pauses);
            assert_about(backoff.pause(), mean);
        }
        let mut backoff = Backoff::new(LONGEST, FIRST);
        assert_about(backoff.pause(), 20);
        assert_about(backoff.pause(), 20);
    }

    #[test]
    fn chance_makes_a_pause_half_to_one_and_a_half_as_long() {
        let pause = Duration::from_millis(100);
        for (chance, millis) in [(0.0, 50), (0.25, 75), (0.5, 100), (1.0, 150)] {
            assert_eq!(spread(pause, chance), Duration::from_millis(millis));
        }
        assert_eq!(spread(Duration::ZERO, 1.0), Duration::ZERO);
        assert_eq!(spread(Duration::MAX, 1.0), Duration::MAX);
        let pauses: Vec<_> = (0..1_000).map(|_| jittered(pause)).collect();
        pauses.iter().for_each(|pause| assert_about(*pause, 100));
        let below = |millis| pauses.iter().filter(|p| p.as_millis() < millis).count();
        assert!(below(60) > 0, "none of a thousand is short");
        assert!(below(140) < pauses.len(), "none of a thousand is long");
    }
}
