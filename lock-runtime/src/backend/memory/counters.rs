//! The counter operations other than leasing.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryBackend;
use super::permits::{self, Permits};
use super::store::Entry;
use crate::backend::{CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::values::Key;

impl Counters for MemoryBackend {
    fn set<'a>(&'a self, counter: CounterRef<'a>, value: u64, _: Duration) -> Reply<'a, bool> {
        self.op(move |state| {
            let key = counter.key;
            if let Some(permits) = permits::permits(state, key, counter.kind)? {
                permits.all_by_request = None;
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

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.listen_at(&Arc::new(counter.key.clone()))
    }
}
