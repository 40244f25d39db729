//! Ids of 64 bits that all processes draw, for the primary keys of the database: `locks.ids(name)` of the library.
//!
//! An id is the time of Redis's clock, or one more than the last id if that is later. So ids are unique over all processes,
//! and ordered by time. A counter of a day, as services write it by hand, is full after 72 minutes at a million ids a
//! second, and starts anew when Redis loses its data; these ids have moved on with the clock by then.
//!
//! Where many ask at a time, a process draws a range for all of them in one request.
//!
//! No lock: one script looks at the clock and at the last id, and Redis runs one script at a time.

use lock_runtime::{Ids, LockManager};

/// What the names of all sources begin with.
pub(crate) const PREFIX: &str = "site:ids:";

pub(crate) fn users(locks: &LockManager) -> Ids {
    locks.ids([PREFIX, "user"].concat())
}

pub(crate) fn reviews(locks: &LockManager) -> Ids {
    locks.ids([PREFIX, "review"].concat())
}

/// Customers see the numbers of their orders. Two plain ids that were drawn together tell how many orders came between;
/// shuffled ones tell their millisecond only.
pub(crate) fn orders(locks: &LockManager) -> Ids {
    locks.ids([PREFIX, "order"].concat()).shuffled()
}
