//! The replicas that must have a lock before it is handed out.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::values::error::{LockError, config};

const WITHIN: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

/// The number of replicas of a Redis master that must have a lock before its guard is handed out, by `WAIT`:
/// [`LockManagerBuilder::replicas`](crate::LockManagerBuilder::replicas).
///
/// ```no_run
/// use std::time::Duration;
/// use lock_runtime::{LockManager, Replicas};
///
/// # async fn connect() -> Result<(), lock_runtime::LockError> {
/// let replicas = Replicas::majority().within(Duration::from_millis(500));
/// let locks = LockManager::builder().replicas(replicas);
/// let locks = locks.connect("redis-sentinel://a,b,c/orders").await?;
/// # Ok(())
/// # }
/// ```
///
/// If fewer have it in time, the lock is given back and asked for again, until the caller's wait is over; the error is
/// then [`LockError::Unavailable`], and says how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    need: Need,
    pub(crate) within: Duration,
    pub(crate) renewals: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    AtLeast(u32),
    Majority,
}

impl Replicas {
    /// No replica is asked: the default.
    pub const fn off() -> Replicas {
        Replicas::new(Need::Nothing)
    }

    /// Asks this number of replicas, one at least.
    pub const fn at_least(replicas: u32) -> Replicas {
        Replicas::new(Need::AtLeast(replicas))
    }

    /// Asks as many replicas as it takes for more than half of all copies to have the lock, the master's among them:
    /// one of one or two replicas, two of three or four, and never none.
    ///
    /// Replicas are counted when the manager connects and whenever a connection that asks them is opened anew. The most
    /// that were seen count, so that a partition does not make a majority smaller; if there are fewer for good, build a
    /// new manager. In a cluster, the master with the most replicas counts for all masters: a master that was just
    /// promoted would otherwise need fewer. The user needs the right `+info`.
    pub const fn majority() -> Replicas {
        Replicas::new(Need::Majority)
    }

    const fn new(need: Need) -> Replicas {
        Replicas {
            need,
            within: Duration::from_secs(1),
            renewals: false,
        }
    }

    /// The time that the replicas may take: 10 ms to 60 s, by default 1 s. Never longer than a sixth of the lease,
    /// which has begun by then, nor longer than the caller waits.
    pub const fn within(mut self, within: Duration) -> Replicas {
        self.within = within;
        self
    }

    /// Whether renewals must be known to as many replicas as well. Default off.
    ///
    /// A renewal that too few replicas know counts as unanswered: it is repeated, and the hold ends at its local
    /// deadline ([`LostReason::Expired`](crate::LostReason::Expired)) if no renewal is known to enough. So a hold does
    /// not outlive an outage of the replicas that is longer than its lease, nor in a cluster a move of its slot that
    /// takes that long. Without it, such a hold goes on at the master alone.
    ///
    /// With it, a failover makes no two holders if every server that is promoted has what was confirmed, and its clock is
    /// ahead of the old master's by no more than 1 % of the lease (10 ms at least): `docs/guarantees.md` says when that
    /// is so.
    pub const fn renewals(mut self, on: bool) -> Replicas {
        self.renewals = on;
        self
    }

    pub(crate) fn check(self) -> Result<(), LockError> {
        if self.need == Need::AtLeast(0) {
            return Err(config(
                "at least 0 replicas asks for nothing: use `Replicas::off()`, or `off` in a configuration",
            ));
        }
        if !WITHIN.contains(&self.within) {
            return Err(config(format!(
                "replicas have between 10 ms and 60 s to confirm a lock, not {:?}",
                self.within
            )));
        }
        Ok(())
    }

    /// Refuses the option for a store that has no replicas.
    pub(crate) fn refuse(self, store: &str) -> Result<(), LockError> {
        if self.is_on() {
            return Err(config(format!(
                "`replicas` is for a Redis master with replicas: {store}"
            )));
        }
        Ok(())
    }

    pub(crate) fn is_on(self) -> bool {
        self.need != Need::Nothing
    }

    /// The number of replicas that have to confirm, of the `connected` ones.
    pub(crate) fn needed_of(self, connected: u32) -> u32 {
        match self.need {
            Need::Nothing => 0,
            Need::AtLeast(replicas) => replicas,
            Need::Majority => (connected / 2 + connected % 2).max(1),
        }
    }

    pub(crate) fn counts(self) -> bool {
        self.need == Need::Majority
    }

    /// The time by which a grant comes later than the store's answer, at most.
    pub(crate) fn longest_delay(self) -> Duration {
        if self.is_on() {
            self.within
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_replicas_and_times_out_of_bounds_are_refused() {
        let with = |replicas: Replicas| replicas.check().is_ok();
        assert!(with(Replicas::off()) && with(Replicas::majority()) && with(Replicas::at_least(1)));
        assert!(!with(Replicas::at_least(0)));
        for bad in [0, 9, 60_001] {
            assert!(!with(
                Replicas::majority().within(Duration::from_millis(bad))
            ));
        }
    }

    #[test]
    fn a_majority_counts_the_master_and_never_the_master_alone() {
        for replicas in 0..9 {
            let needed = Replicas::majority().needed_of(replicas);
            let copies = replicas + 1;
            assert!(needed >= 1);
            assert!((needed + 1) * 2 > copies, "{needed} of {replicas}");
            assert!(
                needed * 2 <= copies || needed == 1,
                "{needed} of {replicas}: no more than it takes"
            );
        }
    }

    #[test]
    fn a_store_without_replicas_refuses_to_wait_for_some() {
        assert!(!Replicas::off().is_on() && Replicas::off().refuse("none").is_ok());
        for replicas in [Replicas::at_least(1), Replicas::majority()] {
            assert!(replicas.is_on());
            let refused = replicas.refuse("it has none").unwrap_err().to_string();
            assert!(refused.ends_with("it has none"), "{refused}");
        }
    }
}
