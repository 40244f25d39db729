//! What a store must be able to do to say who its clients are. For operators: nothing depends on it.

use std::time::{Duration, SystemTime};

use super::Reply;
use crate::values::{ClientRecord, Key, Moment};

/// Records of clients, each under a key of its own ([`Key::of_client`]).
pub(crate) trait Directory: Send + Sync {
    /// Keeps the client's record for [`RECORD_TTL`](crate::values::client::RECORD_TTL), in the place of an earlier one.
    fn introduce<'a>(&'a self, client: Introduction<'a>, timeout: Duration) -> Reply<'a, ()>;

    /// Deletes the record.
    fn withdraw<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, ()>;

    /// The record; `None` if there is none.
    fn who<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<KnownClient>>;
}

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction<'a> {
    pub(crate) key: &'a Key,
    pub(crate) record: &'a ClientRecord,
    /// What others may see of its id: see [`HolderIds::short`](crate::values::holder::HolderIds::short).
    pub(crate) short_id: &'a str,
    /// Since when it has been there.
    pub(crate) began: Moment,
}

/// What a store tells of a client.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub(crate) record: ClientRecord,
    /// Since when it has been there, by the store's clock.
    pub(crate) since: SystemTime,
}
