//! The counter operations of a store, for a semaphore's permits, a latch's count and the ids of a source. Counters have no
//! holder, so most of these requests are not idempotent: an unknown outcome is reported, and the request is never retried.
//! Only ids are drawn again: those of the unknown request are lost, and nobody misses them.

use std::time::Duration;

use super::{Listen, Reply};
use crate::values::{IdRange, IdSecret, Key};

/// The kind of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterKind {
    /// Free permits, leased or plain ones.
    Semaphore,
    /// The number of events that a latch still waits for.
    Latch,
}

impl CounterKind {
    /// Returns the plural of what the counter counts.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            CounterKind::Semaphore => "semaphores",
            CounterKind::Latch => "latches",
        }
    }
}

/// A reference to a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRef<'a> {
    pub(crate) key: &'a Key,
    pub(crate) kind: CounterKind,
}

impl<'a> CounterRef<'a> {
    pub(crate) fn semaphore(key: &'a Key) -> CounterRef<'a> {
        let kind = CounterKind::Semaphore;
        CounterRef { key, kind }
    }

    pub(crate) fn latch(key: &'a Key) -> CounterRef<'a> {
        let kind = CounterKind::Latch;
        CounterRef { key, kind }
    }
}

pub(crate) trait Counters: Send + Sync {
    /// Sets the counter if it is not set, and wakes waiters. Returns `false` if it was set. If leases outlived their
    /// semaphore's counter, the counter is set to `value` less the leased permits.
    fn set<'a>(&'a self, counter: CounterRef<'a>, value: u64, timeout: Duration)
    -> Reply<'a, bool>;

    /// Makes a semaphore have so many permits in all, leased ones included, and wakes waiters if there are free ones
    /// then. It may be set or not.
    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()>;

    /// The counter, with permits whose lease is over; `None` if it is not set. Changes nothing.
    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>>;

    /// Adds to a semaphore that is set, and wakes waiters if there are permits then.
    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()>;

    /// Takes plain permits if there are enough. Not later than `timeout` from now, and never undone: they name no
    /// holder.
    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool>;

    /// Counts a latch down by one, to zero at most, and wakes waiters at zero. What is left.
    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64>;

    /// Deletes the counter and its leases. False if there was none.
    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool>;

    /// Draws so many ids that follow one another, after all that the source has given and not before the store's time. A
    /// source that is not there is made.
    ///
    /// None are given (`None`) before a [block](crate::values::ids::draw) has begun; that is a millisecond at most.
    ///
    /// `secret`: the one to shuffle the ids by if the source is made now. The range has the one that the source was made
    /// with. A source whose ids are shuffled gives none to those that want them plain, and the reverse.
    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>>;

    /// Like [`Backend::listen`](super::Backend::listen).
    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen>;
}
