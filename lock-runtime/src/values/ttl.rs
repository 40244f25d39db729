//! All lease arithmetic, pure: a validated lease and the times that derive from it.
//!
//! Imports nothing of the crate. Times here are durations; `clock.rs` turns them into moments.

use std::time::Duration;

/// The least time of a call, even near the deadline.
pub(crate) const LEAST_CALL: Duration = Duration::from_millis(10);
/// The shortest lease: below it, a scheduling hiccup alone outlives the lease.
pub(crate) const MIN: Duration = Duration::from_millis(50);
/// The longest lease: what a crashed holder may block a key for.
pub(crate) const MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest lease that is renewed: below it the renewals themselves are the load.
pub(crate) const MIN_RENEWED: Duration = Duration::from_secs(1);

/// Returns the lease for which a store is asked to keep a key for this time. It is longer, because the store's clock may be
/// faster.
pub(crate) fn covering(time: Duration) -> Duration {
    (time + time / 50).clamp(MIN, MAX)
}

/// A lease within its bounds, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl(Duration);

impl Ttl {
    /// The shortest lease that is renewed.
    pub(crate) const SHORT: Ttl = Ttl(MIN_RENEWED);
    /// What may be left of a read's lease, whatever it was: Redisson's watchdog sets a lock that its readers share to its
    /// own lease, `lockWatchdogTimeout`, by default 30 s.
    pub(crate) const OF_SHARED: Ttl = Ttl(Duration::from_secs(30));

    /// Validates a lease. The error says what is wrong with it.
    pub(crate) fn new(lease: Duration, renewed: bool) -> Result<Ttl, &'static str> {
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
        Ok(Ttl(Duration::from_millis(millis)))
    }

    pub(crate) fn duration(self) -> Duration {
        self.0
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the margin for the difference of two clocks' rates: 1 %, 10 ms at least.
    pub(crate) fn margin(self) -> Duration {
        (self.0 / 100).max(Duration::from_millis(10))
    }

    /// Returns how long after the request was sent the holder may still rely on its hold.
    pub(crate) fn trusted(self) -> Duration {
        self.0 - self.margin()
    }

    /// The time between two renewals, and between two checks of a fixed lease.
    pub(crate) fn cadence(self) -> Duration {
        self.0 / 3
    }

    /// Returns how much earlier a renewal may go out so that a batch fills.
    pub(crate) fn early(self) -> Duration {
        self.cadence() / 10
    }

    /// Returns when to renew next after a confirmed request: by chance up to [`early`](Ttl::early), so that ten
    /// thousand locks taken in one instant are not renewed in one.
    pub(crate) fn next_renewal(self) -> Duration {
        let early = u64::try_from(self.early().as_micros()).unwrap_or(u64::MAX);
        self.cadence() - Duration::from_micros(fastrand::u64(..=early))
    }

    /// Returns how long one call about this lease may take. For a renewal, how long it usually takes at most: its
    /// answer counts later as well.
    pub(crate) fn call_timeout(self, configured: Duration) -> Duration {
        configured.min(self.0 / 6)
    }

    /// Returns how long a renewal that is late by `overdue` waits for an answer before another is sent beside it. The
    /// pauses double once the renewal is overdue by more than a call may take: a store that does not answer is asked a
    /// few times in a lease, however long that is.
    pub(crate) fn answer_wait(self, configured: Duration, overdue: Duration) -> Duration {
        self.call_timeout(configured).max(overdue)
    }

    /// A store that takes longer than this to answer a renewal has too much to do, or is far away.
    pub(crate) fn slow_answer(self) -> Duration {
        self.0 / 12
    }

    /// Returns how old the last confirmation may be before another request is sent in any case: if an answer was lost,
    /// there is time for one more.
    pub(crate) fn last_call(self) -> Duration {
        self.0 / 6 * 5
    }

    /// Returns how long one node of a quorum may take to answer about this lease: far less than the lease, because the
    /// others' answers grow old meanwhile.
    pub(crate) fn node_timeout(self, call: Duration) -> Duration {
        call.min(self.0 / 10)
    }

    /// Returns the rest of a lease that a majority has granted, `elapsed` after the first request was sent: less the
    /// drift of the nodes' clocks. `None` if nothing is left.
    pub(crate) fn validity(self, elapsed: Duration) -> Option<Duration> {
        self.trusted()
            .checked_sub(elapsed)
            .filter(|left| !left.is_zero())
    }

    /// Returns for how long a store of this `age` is not to be trusted, if this is the longest lease: a lease that it
    /// granted before it lost its memory may last that long, by another clock.
    pub(crate) fn distrusted(self, age: Duration) -> Option<Duration> {
        (self.0 + self.margin())
            .checked_sub(age)
            .filter(|left| !left.is_zero())
    }

    /// Returns the rest that a fresh acquisition must have, or it is given back and tried again.
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
            assert!(Ttl::new(bad, false).is_err(), "{bad:?}");
        }
        assert!(Ttl::new(ms(999), true).is_err());
        assert!(Ttl::new(ms(50), false).is_ok());
        assert!(Ttl::new(MAX, true).is_ok());
    }

    #[test]
    fn a_holder_stops_trusting_its_lease_before_the_store_ends_it() {
        for lease in [50, 51, 300, 1_000, 30_000, 86_400_000] {
            let ttl = Ttl::new(ms(lease), false).unwrap();
            assert!(ttl.trusted() + ttl.margin() == ttl.duration());
            assert!(ttl.margin() >= ms(10) && ttl.margin() >= ttl.duration() / 100);
            // One renewal may fail to answer and the next still arrives in time.
            assert!(ttl.cadence() + ttl.call_timeout(Duration::MAX) * 2 < ttl.trusted());
            // So does an answer that takes a third of the lease.
            assert!(ttl.cadence() + ttl.duration() / 3 < ttl.trusted());
            assert!(ttl.least_useful() < ttl.trusted());
        }
    }

    #[test]
    fn a_silent_store_gets_few_requests_in_a_lease_of_any_length() {
        for (lease, at_most) in [(1_000, 3), (30_000, 5), (86_400_000, 16)] {
            let ttl = Ttl::new(ms(lease), true).unwrap();
            let (mut asked, mut at) = (0, ttl.cadence());
            while at < ttl.trusted() {
                asked += 1;
                at += ttl.answer_wait(ms(2_000), at - ttl.cadence());
            }
            assert!(asked >= 2 && asked <= at_most, "{asked} of {lease} ms");
        }
    }

    #[test]
    fn renewals_are_spread_over_a_tenth_of_the_cadence_never_late() {
        let ttl = Ttl::new(ms(30_000), true).unwrap();
        let mut next: Vec<_> = (0..1_000).map(|_| ttl.next_renewal()).collect();
        next.sort();
        let (first, last) = (next[0], next[999]);
        assert!(first >= ms(9_000) && last <= ms(10_000));
        assert!(last - first > ms(900), "{first:?} to {last:?}");
        // By chance no two of them stand in one millisecond more often than a few times.
        let most = next.chunk_by(|a, b| a.as_millis() == b.as_millis());
        assert!(most.map(<[_]>::len).max() < Some(20));
    }

    #[test]
    fn a_majority_grants_a_lease_less_its_time_and_the_drift() {
        let ttl = Ttl::new(ms(10_000), false).unwrap();
        assert_eq!(ttl.validity(Duration::ZERO), Some(ms(9_900)));
        assert_eq!(ttl.validity(ms(400)), Some(ms(9_500)));
        assert_eq!(ttl.validity(ms(9_899)), Some(ms(1)));
        assert_eq!(ttl.validity(ms(9_900)), None, "the drift is no lease");
        assert_eq!(ttl.validity(ms(20_000)), None);
        let short = Ttl::new(ms(50), false).unwrap();
        assert_eq!(
            short.validity(ms(30)),
            Some(ms(10)),
            "10 ms of drift at least"
        );
    }

    #[test]
    fn a_node_of_a_quorum_answers_in_a_small_part_of_the_lease() {
        for lease in [50, 1_000, 30_000, 86_400_000] {
            let ttl = Ttl::new(ms(lease), false).unwrap();
            let timeout = ttl.node_timeout(Duration::MAX);
            assert!(timeout * 10 <= ttl.duration());
            // Even if every node answers at its last moment, the renewal is repeated in time.
            assert!(ttl.cadence() + timeout * 2 < ttl.trusted());
        }
        let ttl = Ttl::new(ms(30_000), false).unwrap();
        assert_eq!(ttl.node_timeout(ms(200)), ms(200));
    }

    #[test]
    fn a_store_is_distrusted_until_older_than_the_longest_lease() {
        let longest = Ttl::new(ms(60_000), false).unwrap();
        assert_eq!(longest.distrusted(Duration::ZERO), Some(ms(60_600)));
        assert_eq!(longest.distrusted(ms(60_000)), Some(ms(600)));
        assert_eq!(longest.distrusted(ms(60_600)), None);
        assert_eq!(longest.distrusted(Duration::MAX), None);
    }

    #[test]
    fn fractions_of_a_millisecond_are_cut_not_rounded_up() {
        let ttl = Ttl::new(Duration::from_micros(50_999), false).unwrap();
        assert_eq!(ttl.millis(), 50);
        assert_eq!(ttl.duration(), ms(50));
    }

    #[test]
    fn times_derive_from_the_lease_as_documented() {
        let ttl = Ttl::new(ms(30_000), true).unwrap();
        assert_eq!((ttl.cadence(), ttl.early()), (ms(10_000), ms(1_000)));
        assert_eq!(
            (ttl.slow_answer(), ttl.last_call()),
            (ms(2_500), ms(25_000))
        );
        assert_eq!((ttl.least_useful(), ttl.margin()), (ms(7_500), ms(300)));
        assert_eq!(ttl.retry_pause(), ms(500));
    }
}
