//! What is asked of counters beside leasing: Redisson's `RSemaphore` and `RCountDownLatch`.

use std::time::Duration;

use super::permit_scripts::{AddPermits, DeleteCounter, Done, Keys, ReadCounter, SetCounter};
use super::permits::leases;
use super::{Inner, RedisBackend};
use crate::backend::{Counters, Fault, Reply, Sort, Tally};
use crate::key::Key;

/// What Redisson publishes when a latch has a new count, or none any more.
const NEW_COUNT: &str = "1";

/// Where a semaphore's free permits are published.
pub(super) fn channel_of_permits(key: &Key) -> String {
    key.prefixed("redisson_sc")
}

fn channel(tally: Tally<'_>) -> String {
    match tally.sort {
        Sort::Semaphore => channel_of_permits(tally.key),
        // The braces always, unlike any other name.
        Sort::Latch => ["redisson_countdownlatch__channel__{", tally.key.raw(), "}"].concat(),
    }
}

fn payload(tally: Tally<'_>) -> Option<&'static str> {
    (tally.sort == Sort::Latch).then_some(NEW_COUNT)
}

impl Inner {
    fn told(&self, channel: String, done: Done) -> bool {
        if let Some(payload) = done.unpublished {
            self.publish(channel, payload);
        }
        done.done
    }

    async fn set(&self, tally: Tally<'_>, value: u64, timeout: Duration) -> Result<bool, Fault> {
        let channel = channel(tally);
        let script = SetCounter {
            keys: Keys {
                count: tally.key.raw(),
                leases: &leases(tally.key),
            },
            value,
            channel: &channel,
            payload: payload(tally),
        };
        let done = self.call(&script, timeout).await?;
        Ok(self.told(channel, done))
    }

    async fn read(&self, tally: Tally<'_>, timeout: Duration) -> Result<Option<i64>, Fault> {
        let script = ReadCounter {
            keys: Keys {
                count: tally.key.raw(),
                leases: &leases(tally.key),
            },
        };
        let reading = self.call(&script, timeout).await?;
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
        let done = self.call(&script, timeout).await?;
        self.told(channel, done);
        Ok(())
    }

    async fn delete(&self, tally: Tally<'_>, timeout: Duration) -> Result<bool, Fault> {
        let channel = channel(tally);
        let script = DeleteCounter {
            keys: Keys {
                count: tally.key.raw(),
                leases: &leases(tally.key),
            },
            channel: &channel,
            payload: payload(tally),
        };
        let done = self.call(&script, timeout).await?;
        Ok(self.told(channel, done))
    }
}

impl Counters for RedisBackend {
    fn set<'a>(&'a self, tally: Tally<'a>, value: u64, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.set(tally, value, timeout))
    }

    fn read<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        Box::pin(self.inner.read(tally, timeout))
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.add(key, permits, timeout))
    }

    fn delete<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.delete(tally, timeout))
    }
}
