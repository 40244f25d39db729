//! The topics of notifications to waiters. A topic is a hash of the lock's name, because others can read it.

use std::fmt::Write;

use crate::values::{HolderId, Key};

/// Returns the topic of notifications about a key.
pub(super) fn topic(key: &Key) -> String {
    short_hash(key.raw().as_bytes())
}

/// Returns the topic that wakes one waiter of a fair lock.
pub(super) fn own_topic(key: &Key, holder: HolderId) -> String {
    short_hash([key.raw(), "\0", &holder.text()].concat().as_bytes())
}

fn short_hash(bytes: &[u8]) -> String {
    let digest = sha1_smol::Sha1::from(bytes).digest().bytes();
    digest[..8]
        .iter()
        .fold(String::with_capacity(16), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
