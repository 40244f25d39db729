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
    hex(&sha1_smol::Sha1::from(bytes).digest().bytes()[..8])
}

/// Returns bytes as hexadecimal digits.
pub(in crate::backend) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
