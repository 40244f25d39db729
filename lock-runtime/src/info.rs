//! What [`LockManager::inspect`](crate::LockManager::inspect) tells.

use std::fmt;
use std::time::Duration;

use crate::backend::Seen;

/// The state of a lock at the instant the store was asked. It may have changed since.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// True if somebody held the lock.
    pub held: bool,
    /// Who held it.
    pub holder: Option<HolderInfo>,
    /// How the lock was held: `exclusive`. `None` if it was free.
    pub mode: Option<&'static str>,
    /// How often its holder had entered. Re-entries of this library are local and count once; a Redisson holder's
    /// count in the store.
    pub count: u64,
    /// What was left of the lease. `None` if the lock was free, or has no expiry, which this library never makes.
    pub ttl: Option<Duration>,
    /// How many callers of this process wait for it. Those of other processes are not known to the store.
    pub local_waiters: usize,
}

impl LockInfo {
    pub(crate) fn new(seen: Option<Seen>, local_waiters: usize) -> LockInfo {
        LockInfo {
            held: seen.is_some(),
            mode: seen.as_ref().map(|_| "exclusive"),
            count: seen.as_ref().map_or(0, |seen| seen.count),
            ttl: seen.as_ref().and_then(|seen| seen.left),
            holder: seen.map(|seen| HolderInfo::new(&seen.holder)),
            local_waiters,
        }
    }
}

/// A holder, told apart from others without giving away its id: the first eight digits of its client's uuid and the
/// number of the acquisition. Whoever knows a whole id could release the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderInfo {
    text: String,
}

impl HolderInfo {
    fn new(id: &str) -> HolderInfo {
        let client: String = id.chars().take(8).collect();
        let number = id.rsplit_once(':').map_or("", |(_, number)| number);
        let number: String = number.chars().take(20).collect();
        HolderInfo {
            text: format!("{client}…:{number}"),
        }
    }
}

impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
