//! The directory: the operations by which a store describes its clients. Operators use it; no lock depends on it.

use std::time::{Duration, SystemTime};

use super::Reply;
use crate::values::{ClientRecord, Key, Moment};

/// Records of clients, each under a key of its own ([`Key::of_client`]).
pub(crate) trait Directory: Send + Sync {
    /// Keeps the client's record for [`RECORD_TTL`](crate::values::client::RECORD_TTL), and replaces an earlier record.
    fn introduce<'a>(&'a self, client: Introduction<'a>, timeout: Duration) -> Reply<'a, ()>;

    /// Deletes the record.
    fn withdraw<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, ()>;

    /// Returns the record; `None` if there is none.
    fn who<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<KnownClient>>;
}

/// A client's description of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction<'a> {
    pub(crate) key: &'a Key,
    pub(crate) record: &'a ClientRecord,
    /// The part of the client's id that others may see: see
    /// [`HolderIds::short`](crate::values::holder::HolderIds::short).
    pub(crate) short_id: &'a str,
    /// The time at which the client started.
    pub(crate) began: Moment,
}

/// A store's record of a client.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub(crate) record: ClientRecord,
    /// The time at which the client started, by the store's clock.
    pub(crate) since: SystemTime,
}
