//! The counter operations other than leases: Redisson's `RSemaphore` and `RCountDownLatch`, and the sources of ids.

use std::time::Duration;

use super::ids::{DrawIds, Drawn};
use crate::backend::redis::pubsub::messages::channel_of_permits;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::{Announced, Dated};
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{
    AskedKind, CounterKind, CounterRef, Counters, Fault, Listen, Reply, Snapshot, shuffle_clash,
};
use crate::values::{IdRange, IdSecret, Key, clock};

/// The key of a semaphore's leases.
pub(crate) fn leases(key: &Key) -> String {
    key.suffixed("timeout")
}

fn channel(counter: CounterRef<'_>) -> String {
    match counter.kind {
        CounterKind::Semaphore => channel_of_permits(counter.key),
        // This name always has the braces, unlike all others.
        CounterKind::Latch => [
            "redisson_countdownlatch__channel__{",
            counter.key.raw(),
            "}",
        ]
        .concat(),
    }
}

impl Router {
    /// Adds to the fault of the answer what the key holds, if it is not such a counter.
    async fn asked<T>(
        &self,
        counter: CounterRef<'_>,
        answer: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        match answer.await {
            Err(fault) => {
                let asked = AskedKind::Counter(counter.kind);
                Err(self.named(fault, counter.key, asked).await)
            }
            answer => answer,
        }
    }

    async fn ask<S: Script>(
        &self,
        counter: CounterRef<'_>,
        script: &S,
        timeout: Duration,
    ) -> Result<S::Reply, Fault> {
        let answer = self.call(counter.key, script, timeout);
        self.asked(counter, answer).await
    }

    /// Changes a counter by a script that publishes the change.
    async fn change<T, S: Script<Reply = Announced<T>>>(
        &self,
        counter: CounterRef<'_>,
        script: &S,
        timeout: Duration,
    ) -> Result<T, Fault> {
        let changed = self.ask(counter, script, timeout).await?;
        self.publish_all(changed.unpublished);
        Ok(changed.done)
    }

    async fn set(
        &self,
        counter: CounterRef<'_>,
        value: u64,
        again: bool,
        timeout: Duration,
    ) -> Result<bool, Fault> {
        let script = SetCounter {
            counter: counter.key.raw(),
            leases: &leases(counter.key),
            value,
            channel: &channel(counter),
            latch: counter.kind == CounterKind::Latch,
            again,
        };
        self.change(counter, &script, timeout).await
    }

    async fn take(&self, key: &Key, permits: u32, timeout: Duration) -> Result<bool, Fault> {
        let asked_at = clock::now();
        let deadline = asked_at + timeout;
        let mut at = self.route_acquire(key, asked_at, deadline).await?;
        loop {
            let script = TakePermits {
                name: key.name(),
                permits: key.raw(),
                how_many: permits,
                not_after_us: at.live.clock().not_after(at.sent_at, deadline),
            };
            let answer = at.live.call(&script, at.sent_at, deadline).await;
            if let Some(redirect) = self.redirect(&answer) {
                at = self.follow_acquire(redirect, at, key, deadline).await?;
                continue;
            }
            if let Some(taken) = at.settle(answer?)? {
                return Ok(taken);
            }
        }
    }
}

impl Counters for Router {
    fn set<'a>(
        &'a self,
        counter: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        Box::pin(self.set(counter, value, false, timeout))
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        let counter = CounterRef::semaphore(key);
        Box::pin(async move {
            let set = self.set(counter, permits, true, timeout);
            set.await.map(drop)
        })
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        Box::pin(async move {
            let script = ReadCounter {
                counter: counter.key.raw(),
                leases: &leases(counter.key),
            };
            let reading = self.ask(counter, &script, timeout).await;
            let reading = reading.map_err(Fault::of_a_question)?;
            Ok(reading.and_then(|seen| seen.available))
        })
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let script = AddPermits {
                name: key.name(),
                permits: key.raw(),
                how_many: permits,
                channel: &channel_of_permits(key),
            };
            let added = self.change(CounterRef::semaphore(key), &script, timeout);
            added.await.map(drop)
        })
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        let taken = self.take(key, permits, timeout);
        Box::pin(self.asked(CounterRef::semaphore(key), taken))
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        Box::pin(async move {
            let latch = CounterRef::latch(key);
            let script = CountDown {
                latch: key.raw(),
                channel: &channel(latch),
            };
            self.change(latch, &script, timeout).await
        })
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let script = DeleteCounter {
                counter: counter.key.raw(),
                leases: &leases(counter.key),
                channel: &channel(counter),
                latch: counter.kind == CounterKind::Latch,
            };
            self.change(counter, &script, timeout).await
        })
    }

    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        Box::pin(async move {
            let script = DrawIds {
                source: key.raw(),
                count,
                secret: secret.map(IdSecret::text),
            };
            match self.call(key, &script, timeout).await {
                Ok(Drawn::Range(range)) => Ok(Some(range)),
                Ok(Drawn::NotYet) => Ok(None),
                Ok(Drawn::Otherwise { is_shuffled }) => Err(shuffle_clash(key, is_shuffled)),
                Err(fault) => Err(self.named(fault, key, AskedKind::Ids).await),
            }
        })
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        Box::new(self.topics.listen(channel(counter)))
    }
}

/// Parses the rest of a `{'SHORT', …}` reply.
pub(crate) fn too_few<T>(mut items: Items, name: &str) -> Option<Result<T, Fault>> {
    let all = match items.text()?.as_str() {
        "" => None,
        all => Some(all.parse().ok()?),
    };
    items.end(Err(Fault::not_so_many_permits(name, all)))
}

script! {
    "read_counter", "no-writes", ["digits", "time", "refusal", "counter"]
    struct ReadCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {}
    }
    |_, mut items| -> Option<Snapshot> {
        match items.text()?.as_str() {
            "NONE" => items.end(Ok(None)),
            "COUNT" => {
                // There is no number where the server lost it and kept the leases.
                let value: Option<i64> = match items.text()?.as_str() {
                    "" => None,
                    value => Some(value.parse().ok()?),
                };
                let live = u64::try_from(items.integer()?).ok()?;
                let ended = items.integer().filter(|ended| *ended >= 0)?;
                let left = items.expiry()?;
                // Permits whose lease has ended are free: the next acquire takes them back.
                let free = value.map(|value| value.saturating_add(ended));
                items.end(Ok(Some(Snapshot { left, ..Snapshot::of_permits(live, free) })))
            }
            _ => None,
        }
    }
}

script! {
    "set_counter",
    ["digits", "range", "refusal", "counter", "by_request", "publish", "publish_or_append"]
    struct SetCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {
            value: u64,
            channel: &'a str,
            /// A latch publishes that it has a new count; a semaphore, how many permits are free.
            latch: bool,
            /// Sets the counter even if it is set.
            again: bool
        }
    }
    // Whether it set anything.
    |_, mut items| -> Announced<bool> {
        items.word("OK")?;
        Announced::read(items.flag()?, items)
    }
}

script! {
    "add_permits", "allow-oom",
    ["digits", "range", "refusal", "counter", "by_request", "publish", "publish_or_append"]
    struct AddPermits<'a> {
        local { name: &'a str }
        keys { permits: &'a str }
        args { how_many: i64, channel: &'a str }
    }
    // It is always true, and tells the reply from a malformed one.
    |this, mut items| -> Announced<bool> {
        match items.text()?.as_str() {
            "OK" => Announced::read(items.flag()?, items),
            "SHORT" => too_few(items, this.name),
            _ => None,
        }
    }
}

script! {
    "delete_counter", "allow-oom", ["digits", "refusal", "counter", "publish", "publish_or_append"]
    struct DeleteCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {
            channel: &'a str,
            /// The waiters of a latch are woken.
            latch: bool
        }
    }
    // Whether it deleted anything.
    |_, mut items| -> Announced<bool> {
        items.word("OK")?;
        Announced::read(items.flag()?, items)
    }
}

script! {
    "take_permits", ["digits", "range", "refusal", "fence", "admitted", "counter"]
    struct TakePermits<'a> {
        local { name: &'a str }
        keys { permits: &'a str }
        args { how_many: u32, not_after_us: u64 }
    }
    // Whether the permits were taken.
    |this, mut items| -> Dated<bool> {
        let done = match items.text()?.as_str() {
            "OK" => Some(true),
            "BUSY" => Some(false),
            "STALE" => None,
            "SHORT" => return too_few(items, this.name),
            _ => return None,
        };
        let time = items.digits()?;
        items.end(Ok(Dated { done, time }))
    }
}

script! {
    "count_down", "allow-oom", ["digits", "refusal", "counter", "publish", "publish_or_append"]
    struct CountDown<'a> {
        keys { latch: &'a str }
        args { channel: &'a str }
    }
    // The count that is left.
    |_, mut items| -> Announced<u64> {
        items.word("OK")?;
        Announced::read(items.digits()?, items)
    }
}
