//! The counter operations of a store: a semaphore's permits, a latch's count and the ids of a source. Counters have no
//! holder, so most of these requests are not idempotent: an unknown outcome is reported, and the request is never
//! retried. Only ids are drawn again: the ids of the unknown request are lost, which does no harm.

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

    /// Sets the number of all permits of a semaphore, leased permits included, and wakes waiters if permits are then
    /// free. The semaphore may be set or not.
    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()>;

    /// Returns the counter, including permits whose lease is over; `None` if the counter is not set. Changes nothing.
    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>>;

    /// Adds permits to a semaphore that is set, and wakes waiters if permits are then free.
    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()>;

    /// Takes plain permits if enough are free. Takes none later than `timeout` from now. The call is never undone,
    /// because plain permits name no holder.
    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool>;

    /// Counts a latch down by one, to zero at most, and wakes waiters at zero. Returns the count that is left.
    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64>;

    /// Deletes the counter and its leases. Returns `false` if there was none.
    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool>;

    /// Draws `count` consecutive ids, after all ids that the source has given, and not before the store's time. Makes
    /// the source if it does not exist.
    ///
    /// Returns `None` before a [block](crate::values::ids::draw) of ids has begun, which takes a millisecond at most.
    ///
    /// `secret` shuffles the ids if this call makes the source. The returned range has the secret that the source was
    /// made with. A source of shuffled ids gives no plain ids, and the reverse.
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
