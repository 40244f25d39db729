//! The counter operations other than leasing.

use std::time::Duration;

use tokio::time::Instant;

use super::MemoryBackend;
use super::permits::{self, Permits};
use super::store::{Entry, foreign};
use crate::backend::{
    AskedKind, CounterKind, CounterRef, Counters, Fault, Listen, Reply, shuffle_clash,
};
use crate::values::ids::{Draw, SOURCE_LIFE, draw};
use crate::values::{IdRange, IdSecret, Key, clock};

/// The last id that a source has given.
pub(super) struct LastId {
    last: i64,
    secret: Option<IdSecret>,
    pub(super) expires: Instant,
}

impl Counters for MemoryBackend {
    fn set<'a>(&'a self, counter: CounterRef<'a>, value: u64, _: Duration) -> Reply<'a, bool> {
        self.op(move |state| {
            let key = counter.key;
            if let Some(permits) = permits::permits(state, key, counter.kind)? {
                if counter.kind == CounterKind::Semaphore {
                    permits.all_by_request = None;
                }
                return Ok(false);
            }
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            state.put(key, Entry::Permits(Permits::new(value)));
            state.wake(key);
            Ok(true)
        })
    }

    fn limit<'a>(&'a self, key: &'a Key, all: u64, _: Duration) -> Reply<'a, ()> {
        self.op(move |state| {
            let all = i64::try_from(all).unwrap_or(i64::MAX);
            match permits::permits(state, key, CounterKind::Semaphore)? {
                Some(permits) => {
                    permits.free = all - permits.leased();
                    permits.all_by_request = None;
                }
                None => state.put(key, Entry::Permits(Permits::new(all))),
            }
            state.wake(key);
            Ok(())
        })
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, _: Duration) -> Reply<'a, Option<i64>> {
        self.op(move |state| {
            let permits = permits::permits(state, counter.key, counter.kind)?;
            Ok(permits.map(|permits| permits.free))
        })
    }

    fn add<'a>(&'a self, key: &'a Key, by: i64, _: Duration) -> Reply<'a, ()> {
        self.op(move |state| {
            let Some(permits) = permits::permits(state, key, CounterKind::Semaphore)? else {
                return Err(Fault::NotSet);
            };
            permits.free += by;
            permits.all_by_request = None;
            if permits.free > 0 {
                state.wake(key);
            }
            Ok(())
        })
    }

    fn take<'a>(&'a self, key: &'a Key, wanted: u32, _: Duration) -> Reply<'a, bool> {
        self.op(move |state| {
            let Some(permits) = permits::permits(state, key, CounterKind::Semaphore)? else {
                return Err(Fault::NotSet);
            };
            let wanted = i64::from(wanted);
            let enough = permits.free >= wanted;
            if enough {
                permits.free -= wanted;
            }
            Ok(enough)
        })
    }

    fn count_down<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, u64> {
        self.op(move |state| {
            let Some(count) = permits::permits(state, key, CounterKind::Latch)? else {
                return Ok(0);
            };
            count.free -= 1;
            let left = u64::try_from(count.free).unwrap_or(0);
            if left == 0 {
                state.locks.remove(key.raw());
                state.wake(key);
            }
            Ok(left)
        })
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, _: Duration) -> Reply<'a, bool> {
        self.op(move |state| {
            let stood = permits::permits(state, counter.key, counter.kind)?.is_some();
            if stood {
                state.locks.remove(counter.key.raw());
            }
            if stood && counter.kind == CounterKind::Latch {
                state.wake(counter.key);
            }
            Ok(stood)
        })
    }

    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        _: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        self.op(move |state| {
            let (last, kept) = match state.live(key) {
                None => (None, secret),
                Some(Entry::Ids(source)) => (Some(source.last), source.secret),
                Some(entry) => return Err(foreign(key, entry, AskedKind::Ids)),
            };
            if kept.is_some() != secret.is_some() {
                return Err(shuffle_clash(key, kept.is_some()));
            }
            let drawn = draw(last, state.micros(), count, kept.is_some());
            let (range, last) = match drawn.ok_or_else(Fault::no_ids_at_this_time)? {
                Draw::From(first) => (
                    IdRange::new(first, count, kept),
                    first + i64::from(count) - 1,
                ),
                Draw::NotYet(last) => (None, last),
            };
            let source = LastId {
                last,
                secret: kept,
                // The store's clock is tokio's, and is never set back: the last id is not ahead of it.
                expires: clock::tick() + SOURCE_LIFE,
            };
            state.put(key, Entry::Ids(source));
            Ok(range)
        })
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.listen_to_topic(counter.key.raw())
    }
}
