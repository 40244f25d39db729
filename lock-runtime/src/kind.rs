//! The kinds of locks. A name is used with one kind everywhere; the kind is a part of the key's identity in this
//! process, so each has its own local queue and its own re-entry.

/// What sort of lock a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Exclusive and reentrant: Redisson's `RLock`.
    Mutex,
    /// A mutex whose tokens come from Redisson's counter of that lock: `RFencedLock`.
    Fenced,
    /// Permits of a semaphore, leased to their holder: Redisson's `RPermitExpirableSemaphore`.
    Permits,
    /// A mutex that serves its waiters in the order in which they asked, whatever their process: `RFairLock`.
    Fair,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Mutex, Kind::Fenced, Kind::Permits, Kind::Fair];

    /// Whether the store keeps it as a mutex.
    pub(crate) fn is_mutex(self) -> bool {
        matches!(self, Kind::Mutex | Kind::Fenced)
    }

    /// Whether one hold at a time is admitted, so that it owns this process's turn at the key and hands it on.
    pub(crate) fn is_exclusive(self) -> bool {
        match self {
            Kind::Mutex | Kind::Fenced | Kind::Fair => true,
            Kind::Permits => false,
        }
    }

    /// Whether a request under an ancestor's hold of the same key shares that hold.
    pub(crate) fn is_reentrant(self) -> bool {
        match self {
            Kind::Mutex | Kind::Fenced | Kind::Fair => true,
            Kind::Permits => false,
        }
    }
}
