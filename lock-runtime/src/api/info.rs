//! The answer of [`LockManager::inspect`](crate::LockManager::inspect).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::{Duration, SystemTime};

use crate::api::clients::Clients;
use crate::backend::{KnownClient, Snapshot};
use crate::values::{LockMode, client, holder};

/// The state of a lock at the instant the store was asked. It may have changed since.
///
/// ```
/// use lock_runtime::{LockManager, LockMode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("report").acquire().await?;
/// let info = locks.inspect("report").await?;
/// assert_eq!(info.mode, Some(LockMode::Exclusive));
/// if let Some(holder) = &info.holder {
///     println!("{holder} holds it, {:?} left", info.ttl);
///     assert_eq!(holder.manager_id(), locks.id());
/// }
/// guard.release().await?;
/// assert!(!locks.inspect("report").await?.held);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockInfo {
    /// True if somebody held the lock, or leased permits of the semaphore.
    pub held: bool,
    /// True if the holder's process keeps the lock between its holds ([`keep_for`](crate::LockRequest::keep_for)). Then
    /// it may be that nobody used the lock: only that process knows. A process that asks for the lock gets it once it
    /// is not used.
    pub kept: bool,
    /// The holder; if there are several readers, one of them. `None` for a semaphore: its leases name no holder.
    pub holder: Option<HolderInfo>,
    /// The mode in which the lock was held. `None` if it was free.
    pub mode: Option<LockMode>,
    /// The number of readers that held it. It is zero in any mode except [`LockMode::Read`]. Redis looks at about 450
    /// of them; those beyond count as readers even if their leases are over.
    pub readers: u64,
    /// The number of times that its holder had entered. Re-entries of this library are local and count once; those of a
    /// Redisson holder count in the store. For a semaphore, it is the number of permits that are leased.
    pub count: u64,
    /// The rest of the lease; for a semaphore, of the lease that ends first. `None` if the lock was free, or has no
    /// expiry, which this library never makes.
    pub ttl: Option<Duration>,
    /// The free permits of a semaphore, or the count of a latch; `None` for a lock, and for a semaphore whose number the
    /// store has lost. It is below zero if more permits were taken away than were free.
    pub available: Option<i64>,
    /// The number of waiters in the queue of a fair lock, those of all processes. It is zero if the lock was free; the
    /// waiters of other locks are not known to the store.
    pub waiters: u64,
    /// The first of these waiters, in the order in which they are served, 16 at most.
    pub first_waiters: Vec<HolderInfo>,
    /// The number of callers of this process that wait for it.
    pub local_waiters: usize,
}

impl LockInfo {
    pub(crate) fn new(seen: Option<Snapshot>, clients: &Clients, local_waiters: usize) -> LockInfo {
        let holder = |id: &str| HolderInfo::new(id, clients.of_holder(id));
        let first_waiters = seen.iter().flat_map(|seen| &seen.first_waiters);
        LockInfo {
            first_waiters: first_waiters.map(|id| holder(id)).collect(),
            held: seen.as_ref().is_some_and(|seen| seen.count > 0),
            kept: seen
                .as_ref()
                .is_some_and(|seen| seen.holder.as_deref().is_some_and(holder::keeps)),
            mode: seen.as_ref().map(|seen| seen.mode),
            readers: seen.as_ref().map_or(0, |seen| seen.readers),
            count: seen.as_ref().map_or(0, |seen| seen.count),
            waiters: seen.as_ref().map_or(0, |seen| seen.queued),
            ttl: seen.as_ref().and_then(|seen| seen.left),
            available: seen.as_ref().and_then(|seen| seen.available),
            holder: seen.and_then(|seen| Some(holder(&seen.holder?))),
            local_waiters,
        }
    }
}

/// A holder or a waiter, told apart from others without giving away its id: by the first eight digits of its client's
/// uuid and the number of the acquisition. Anybody who knows a whole id could release the lock.
///
/// The client itself says who it is, in a record that the store keeps while the client holds locks or waits for fair
/// ones, and up to 90 s longer. The record is there a moment after the first lock. There is no record of a client of
/// another library or another namespace, of a client whose user may not write it, or, in a quorum, of any other
/// manager. Users that may write the store's keys may write records: believe a record as far as you trust these users.
///
/// `Display` shows `orders-api@host-3 (ab12cd34…:17)`, or `ab12cd34…:17` without a record. Two values are equal if they
/// show the same client and number, no matter what else is known of the client.
///
/// See the example of [`LockInfo`].
#[derive(Clone, Debug)]
pub struct HolderInfo {
    text: String,
    client: Option<KnownClient>,
}

/// The character in the place of the part that is not shown.
const HIDDEN: char = '…';

impl HolderInfo {
    pub(crate) fn new(id: &str, client: Option<KnownClient>) -> HolderInfo {
        let short: String = id.chars().take(8).collect();
        let number = id.rsplit_once(':').map_or("", |(_, number)| number);
        let number: String = number.chars().take(20).collect();
        HolderInfo {
            // Who may write the store's keys may write anything there.
            text: client::presentable(&format!("{short}{HIDDEN}:{number}")),
            client,
        }
    }

    /// Returns the [`LockManager::id`](crate::LockManager::id) of the manager that holds the lock. For a Redisson
    /// client, it is the first eight digits of its id.
    pub fn manager_id(&self) -> &str {
        self.text.split(HIDDEN).next().unwrap_or_default()
    }

    /// Returns the name that the holder's program gives itself: see
    /// [`LockManagerBuilder::app`](crate::LockManagerBuilder::app).
    pub fn app(&self) -> Option<&str> {
        Some(&self.client.as_ref()?.record.app)
    }

    /// Returns the name of its host.
    pub fn host(&self) -> Option<&str> {
        let host = &*self.client.as_ref()?.record.host;
        Some(host).filter(|host| !host.is_empty())
    }

    /// Returns the id of its process on that host.
    pub fn process_id(&self) -> Option<u32> {
        Some(self.client.as_ref()?.record.process_id)
    }

    /// Returns the version of this library that it uses.
    pub fn version(&self) -> Option<&str> {
        Some(&self.client.as_ref()?.record.version)
    }

    /// Returns the time since which its lock manager has been there, by the store's clock.
    pub fn since(&self) -> Option<SystemTime> {
        Some(self.client.as_ref()?.since)
    }
}

/// What its methods return.
#[cfg(feature = "serde")]
impl serde::Serialize for HolderInfo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;

        let mut fields = serializer.serialize_struct("HolderInfo", 6)?;
        fields.serialize_field("manager_id", self.manager_id())?;
        fields.serialize_field("app", &self.app())?;
        fields.serialize_field("host", &self.host())?;
        fields.serialize_field("process_id", &self.process_id())?;
        fields.serialize_field("version", &self.version())?;
        fields.serialize_field("since", &self.since())?;
        fields.end()
    }
}

impl PartialEq for HolderInfo {
    fn eq(&self, other: &HolderInfo) -> bool {
        self.text == other.text
    }
}

impl Eq for HolderInfo {}

impl Hash for HolderInfo {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderInfo { text, .. } = self;
        match (self.app(), self.host()) {
            (Some(app), Some(host)) => write!(f, "{app}@{host} ({text})"),
            (Some(app), None) => write!(f, "{app} ({text})"),
            _ => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::client::ClientRecord;
    use crate::values::error::steers;

    #[test]
    fn a_holder_is_shown_by_app_and_host_and_never_by_its_whole_id() {
        let id = "ab12cd34-0000-8000-8000-000000000000:17";
        let plain = HolderInfo::new(id, None);
        assert_eq!(plain.to_string(), "ab12cd34…:17");
        assert_eq!((plain.app(), plain.process_id()), (None, None));
        let known = |host: &str| KnownClient {
            record: ClientRecord {
                app: "orders-api".to_owned(),
                host: host.to_owned(),
                process_id: 7,
                version: "0.1.0".to_owned(),
            },
            since: SystemTime::UNIX_EPOCH,
        };
        let full = HolderInfo::new(id, Some(known("host-3")));
        assert_eq!(full.to_string(), "orders-api@host-3 (ab12cd34…:17)");
        assert!(!format!("{full:?}").contains(id));
        assert_eq!(full, plain, "the same holder");
        let unhoused = HolderInfo::new(id, Some(known("")));
        assert_eq!(unhoused.to_string(), "orders-api (ab12cd34…:17)");
        assert_eq!(unhoused.host(), None);
    }

    #[test]
    fn a_holder_that_somebody_made_up_steers_no_terminal() {
        let shown = HolderInfo::new("\u{1b}[31m\n\u{202e}:7\r\n", None).to_string();
        assert!(!shown.chars().any(steers), "{shown:?}");
    }
}
