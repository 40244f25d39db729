//! What those who wait are told by: a hash of a lock's name, for others can read along.

use std::fmt::Write;

use crate::values::{HolderId, Key};

/// What the notifications about a key are called.
pub(super) fn topic(key: &Key) -> String {
    short_hash(key.raw().as_bytes())
}

/// What one waiter of a fair lock is woken by.
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
