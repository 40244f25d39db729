//! The kinds of locks. A name is used with one kind everywhere; the kind is a part of the key's identity in this
//! process, so each has its own local queue and its own re-entry.

use std::fmt;

/// The mode in which a lock was held, as [`LockInfo`](crate::LockInfo) tells it.
///
/// See the example of [`LockInfo`](crate::LockInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum LockMode {
    /// By one holder. A fair lock that nobody waits for looks like any other.
    Exclusive,
    /// By one holder, and the store has a queue for the lock.
    Fair,
    /// By readers.
    Read,
    /// By a writer.
    Write,
    /// Permits of a semaphore are leased.
    Semaphore,
    /// A number without leases. A plain semaphore, a semaphore whose permits are all free, and a latch look the same in
    /// the store.
    Counter,
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockMode::Exclusive => "exclusive",
            LockMode::Fair => "fair",
            LockMode::Read => "read",
            LockMode::Write => "write",
            LockMode::Semaphore => "semaphore",
            LockMode::Counter => "counter",
        })
    }
}

/// The kind of a lock, as [`ManagerSnapshot`](crate::ManagerSnapshot) tells it.
///
/// See the example of [`ManagerSnapshot`](crate::ManagerSnapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum LockKind {
    /// Exclusive and reentrant: Redisson's `RLock`.
    Mutex,
    /// A mutex whose tokens come from Redisson's counter of that lock: `RFencedLock`.
    Fenced,
    /// Permits of a semaphore, leased to their holder: Redisson's `RPermitExpirableSemaphore`.
    Semaphore,
    /// A mutex that serves its waiters in the order in which they asked, whatever their process: `RFairLock`.
    Fair,
    /// The shared side of Redisson's `RReadWriteLock`.
    Read,
    /// Its exclusive side.
    Write,
}

/// The name that the crate itself uses.
pub(crate) type Kind = LockKind;

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl LockKind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Mutex,
        Kind::Fenced,
        Kind::Semaphore,
        Kind::Fair,
        Kind::Read,
        Kind::Write,
    ];

    /// Returns its name in logs and metrics: one word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Fenced => "fenced",
            Kind::Semaphore => "semaphore",
            Kind::Fair => "fair",
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }

    /// Returns the plural of its name.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Kind::Mutex => "mutexes",
            Kind::Fenced => "fenced locks",
            Kind::Semaphore => "semaphores",
            Kind::Fair => "fair locks",
            Kind::Read | Kind::Write => "read/write locks",
        }
    }

    /// Whether the store keeps it as a mutex.
    pub(crate) fn is_mutex(self) -> bool {
        matches!(self, Kind::Mutex | Kind::Fenced)
    }

    /// Whether one hold at a time is admitted, so that it owns the front of this process at the key and hands it on.
    pub(crate) fn is_exclusive(self) -> bool {
        match self {
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => true,
            Kind::Semaphore | Kind::Read => false,
        }
    }

    /// Whether a request under an ancestor's hold of the same key shares that hold.
    pub(crate) fn is_reentrant(self) -> bool {
        match self {
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Read | Kind::Write => true,
            Kind::Semaphore => false,
        }
    }

    /// Whether two kinds are sides of one lock: a request for one may be nested in a hold of the other.
    pub(crate) fn is_of_one_lock_with(self, other: Kind) -> bool {
        let read_write = |kind| matches!(kind, Kind::Read | Kind::Write);
        self == other || (read_write(self) && read_write(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_listed() {
        // A new kind does not compile here until it is in the chain.
        let next = |kind| match kind {
            Kind::Mutex => Some(Kind::Fenced),
            Kind::Fenced => Some(Kind::Semaphore),
            Kind::Semaphore => Some(Kind::Fair),
            Kind::Fair => Some(Kind::Read),
            Kind::Read => Some(Kind::Write),
            Kind::Write => None,
        };
        let chain: Vec<_> = std::iter::successors(Some(Kind::Mutex), |kind| next(*kind)).collect();
        assert_eq!(chain, Kind::ALL);
    }

    #[test]
    fn a_mode_is_displayed_as_one_word() {
        let modes = [
            (LockMode::Exclusive, "exclusive"),
            (LockMode::Fair, "fair"),
            (LockMode::Read, "read"),
            (LockMode::Write, "write"),
            (LockMode::Semaphore, "semaphore"),
            (LockMode::Counter, "counter"),
        ];
        for (mode, word) in modes {
            assert_eq!(mode.to_string(), word);
        }
    }

    #[test]
    fn only_a_read_and_a_write_are_two_kinds_of_one_lock() {
        for one in Kind::ALL {
            for other in Kind::ALL {
                let both = [Kind::Read, Kind::Write];
                let is_one = one == other || both.contains(&one) && both.contains(&other);
                assert_eq!(one.is_of_one_lock_with(other), is_one, "{one}, {other}");
            }
        }
    }
}
