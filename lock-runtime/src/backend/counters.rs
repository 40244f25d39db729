//! What a store must be able to do with counters: a semaphore's permits, a latch's count. They have no holder, so
//! most of these requests are not idempotent: an unknown outcome is told, never tried again.

use std::time::Duration;

use super::Reply;
use crate::key::Key;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Free permits, leased or plain ones.
    Semaphore,
    /// What a latch still waits for.
    Latch,
}

/// Which counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally<'a> {
    pub(crate) key: &'a Key,
    pub(crate) sort: Sort,
}

pub(crate) trait Counters {
    /// Sets the counter if it is not set, and wakes waiters. False if it was set. A semaphore whose leases outlived
    /// its counter gets what they leave.
    fn set<'a>(&'a self, tally: Tally<'a>, value: u64, timeout: Duration) -> Reply<'a, bool>;

    /// The counter, with permits whose lease is over; `None` if it is not set. Changes nothing.
    fn read<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, Option<i64>>;

    /// Adds to a semaphore that is set, and wakes waiters if there are permits then.
    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()>;

    /// Deletes the counter and its leases. False if there was none.
    fn delete<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, bool>;
}
