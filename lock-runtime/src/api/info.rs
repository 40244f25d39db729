//! What [`LockManager::inspect`](crate::LockManager::inspect) tells.

use std::fmt;
use std::time::Duration;

use crate::backend::Snapshot;
use crate::values::kind::LockMode;

/// The state of a lock at the instant the store was asked. It may have changed since.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// True if somebody held the lock, or leased permits of the semaphore.
    pub held: bool,
    /// Who held it; of several readers, one. `None` for a semaphore: its leases do not say whose they are.
    pub holder: Option<HolderInfo>,
    /// How the lock was held. `None` if it was free.
    pub mode: Option<LockMode>,
    /// How many readers held it. Zero in any mode but [`LockMode::Read`]. Redis looks at some 450 of them; those beyond
    /// count as readers even if their leases are over.
    pub readers: u64,
    /// How often its holder had entered. Re-entries of this library are local and count once; a Redisson holder's
    /// count in the store. For a semaphore, how many permits are leased.
    pub count: u64,
    /// What was left of the lease, for a semaphore of the one that ends first. `None` if the lock was free, or has no
    /// expiry, which this library never makes.
    pub ttl: Option<Duration>,
    /// The free permits of a semaphore, or the count of a latch; `None` for a lock. Below zero if more permits were
    /// taken away than were free.
    pub available: Option<i64>,
    /// How many wait for it in the queue of a fair lock, those of all processes. Zero if it was free; the waiters of
    /// other locks are not known to the store.
    pub waiters: u64,
    /// How many callers of this process wait for it.
    pub local_waiters: usize,
}

impl LockInfo {
    pub(crate) fn new(seen: Option<Snapshot>, local_waiters: usize) -> LockInfo {
        LockInfo {
            held: seen.as_ref().is_some_and(|seen| seen.count > 0),
            mode: seen.as_ref().map(|seen| seen.mode),
            readers: seen.as_ref().map_or(0, |seen| seen.readers),
            count: seen.as_ref().map_or(0, |seen| seen.count),
            waiters: seen.as_ref().map_or(0, |seen| seen.queued),
            ttl: seen.as_ref().and_then(|seen| seen.left),
            available: seen.as_ref().and_then(|seen| seen.available),
            holder: seen.and_then(|seen| Some(HolderInfo::new(&seen.holder?))),
            local_waiters,
        }
    }
}

/// A holder, told apart from others without giving away its id: the first eight digits of its client's uuid and the
/// number of the acquisition. Anybody who knows a whole id could release the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderInfo {
    text: String,
}

/// In the place of what is not shown.
const HIDDEN: char = '…';

impl HolderInfo {
    fn new(id: &str) -> HolderInfo {
        let client: String = id.chars().take(8).collect();
        let number = id.rsplit_once(':').map_or("", |(_, number)| number);
        let number: String = number.chars().take(20).collect();
        HolderInfo {
            text: format!("{client}{HIDDEN}:{number}"),
        }
    }

    /// Which manager holds: its [`LockManager::id`](crate::LockManager::id). Of a Redisson client, the first eight
    /// digits of its id.
    pub fn manager_id(&self) -> &str {
        self.text.split(HIDDEN).next().unwrap_or_default()
    }
}

impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
