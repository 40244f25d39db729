//! What is asked of counters beside leasing: Redisson's `RSemaphore` and `RCountDownLatch`.

use std::time::Duration;

use super::counter_scripts::{
    AddPermits, CountDown, DeleteCounter, Done, Keys, OPEN, ReadCounter, SetCounter, TakePermits,
    TakePermitsReply,
};
use super::permits::leases;
use crate::backend::redis::{Inner, RedisBackend};
use crate::backend::{CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::values::clock;
use crate::values::error::StoreError;
use crate::values::key::Key;

/// What Redisson publishes when a latch has a new count, or none any more.
const NEW_COUNT: &str = "1";

/// Where a semaphore's free permits are published.
pub(crate) fn channel_of_permits(key: &Key) -> String {
    key.prefixed("redisson_sc")
}

fn channel(counter: CounterRef<'_>) -> String {
    match counter.kind {
        CounterKind::Semaphore => channel_of_permits(counter.key),
        // The braces always, unlike any other name.
        CounterKind::Latch => [
            "redisson_countdownlatch__channel__{",
            counter.key.raw(),
            "}",
        ]
        .concat(),
    }
}

fn payload(counter: CounterRef<'_>) -> Option<&'static str> {
    (counter.kind == CounterKind::Latch).then_some(NEW_COUNT)
}

impl Inner {
    fn told(&self, channel: String, done: Done) -> bool {
        if let Some(payload) = done.unpublished {
            self.publish(channel, payload);
        }
        done.done
    }

    async fn set(
        &self,
        counter: CounterRef<'_>,
        value: u64,
        again: bool,
        timeout: Duration,
    ) -> Result<bool, Fault> {
        let channel = channel(counter);
        let script = SetCounter {
            keys: Keys {
                count: counter.key.raw(),
                leases: &leases(counter.key),
            },
            value,
            again,
            channel: &channel,
            payload: payload(counter),
        };
        let done = self.call(counter.key, &script, timeout).await?;
        Ok(self.told(channel, done))
    }

    async fn limit(&self, key: &Key, permits: u64, timeout: Duration) -> Result<(), Fault> {
        let kind = CounterKind::Semaphore;
        self.set(CounterRef { key, kind }, permits, true, timeout)
            .await?;
        Ok(())
    }

    async fn read(&self, counter: CounterRef<'_>, timeout: Duration) -> Result<Option<i64>, Fault> {
        let script = ReadCounter {
            keys: Keys {
                count: counter.key.raw(),
                leases: &leases(counter.key),
            },
        };
        let reading = self.call(counter.key, &script, timeout).await?;
        Ok(reading.map(|reading| reading.free()))
    }

    async fn add(&self, key: &Key, permits: i64, timeout: Duration) -> Result<(), Fault> {
        let channel = channel_of_permits(key);
        let script = AddPermits {
            count: key.raw(),
            name: key.name(),
            by: permits,
            channel: &channel,
        };
        let done = self.call(key, &script, timeout).await?;
        self.told(channel, done);
        Ok(())
    }

    async fn take(&self, key: &Key, permits: u32, timeout: Duration) -> Result<bool, Fault> {
        let asked_at = clock::now();
        let deadline = asked_at + timeout;
        let mut at = self.admit(key, asked_at, deadline).await?;
        // The second attempt is for a first one that was refused as too late: then the clock was not known, or jumped.
        let mut late = false;
        loop {
            let script = TakePermits {
                count: key.raw(),
                name: key.name(),
                permits,
                not_after: at.live.clock().not_after(at.sent_at, deadline),
            };
            let answer = at.live.call(&script, at.sent_at, deadline).await;
            if let Some(redirect) = self.redirect(&answer) {
                at = self.admit_elsewhere(redirect, at, key, deadline).await?;
                continue;
            }
            let (taken, time) = match answer? {
                TakePermitsReply::Taken { time } => (Some(true), time),
                TakePermitsReply::Busy { time } => (Some(false), time),
                TakePermitsReply::Stale { time } => (None, time),
            };
            at.live.clock().saw(time, at.sent_at);
            if let Some(taken) = taken {
                return Ok(taken);
            }
            if std::mem::replace(&mut late, true) {
                return Err(Fault::NotDone(StoreError::new(
                    "the request reached the lock store too late",
                )));
            }
            at.sent_at = clock::now();
        }
    }

    async fn count_down(&self, key: &Key, timeout: Duration) -> Result<u64, Fault> {
        let kind = CounterKind::Latch;
        let channel = channel(CounterRef { key, kind });
        let script = CountDown {
            count: key.raw(),
            channel: &channel,
        };
        let (left, unpublished) = self.call(key, &script, timeout).await?;
        if unpublished {
            self.publish(channel, OPEN.to_owned());
        }
        Ok(left)
    }

    async fn delete(&self, counter: CounterRef<'_>, timeout: Duration) -> Result<bool, Fault> {
        let channel = channel(counter);
        let script = DeleteCounter {
            keys: Keys {
                count: counter.key.raw(),
                leases: &leases(counter.key),
            },
            channel: &channel,
            // As if it had been counted down: `1` would wake none of Redisson's waiters.
            payload: (counter.kind == CounterKind::Latch).then_some(OPEN),
        };
        let done = self.call(counter.key, &script, timeout).await?;
        Ok(self.told(channel, done))
    }
}

impl Counters for RedisBackend {
    fn set<'a>(
        &'a self,
        counter: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        Box::pin(self.inner.set(counter, value, false, timeout))
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.limit(key, permits, timeout))
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        Box::pin(self.inner.read(counter, timeout))
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.add(key, permits, timeout))
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.take(key, permits, timeout))
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        Box::pin(self.inner.count_down(key, timeout))
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.delete(counter, timeout))
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        Box::new(self.inner.topics.listen(channel(counter)))
    }
}
