//! The counter operations other than leases: Redisson's `RSemaphore` and `RCountDownLatch`.

use std::time::Duration;

use crate::backend::redis::pubsub::messages::channel_of_permits;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::Dated;
use crate::backend::redis::scripting::{Items, Script, Source, foreign, lua, script, source};
use crate::backend::{
    AskedKind, CounterKind, CounterRef, Counters, Fault, Listen, Reply, Snapshot,
};
use crate::values::{IdRange, IdSecret, Key, clock};

/// The message that Redisson publishes when a latch has opened.
const OPEN: &str = "0";
/// The message that Redisson publishes when a latch has a new count, or is deleted.
const NEW_COUNT: &str = "1";

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

/// Returns the message for a new count. An empty string means the count itself.
fn payload(counter: CounterRef<'_>) -> &'static str {
    match counter.kind {
        CounterKind::Semaphore => "",
        CounterKind::Latch => NEW_COUNT,
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

    /// Changes a counter by a script that publishes the change. Returns `true` if it changed anything.
    async fn change<S: Script<Reply = Done>>(
        &self,
        counter: CounterRef<'_>,
        script: &S,
        channel: &str,
        timeout: Duration,
    ) -> Result<bool, Fault> {
        let done = self.ask(counter, script, timeout).await?;
        if let Some(payload) = done.unpublished {
            self.publish(channel.to_owned(), payload);
        }
        Ok(done.done)
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
            counter: counter.key.raw(),
            leases: &leases(counter.key),
            value,
            channel: &channel,
            payload: payload(counter),
            again,
        };
        self.change(counter, &script, &channel, timeout).await
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
            Ok(reading.and_then(CounterReading::free))
        })
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        Box::pin(async move {
            let (counter, channel) = (CounterRef::semaphore(key), channel_of_permits(key));
            let script = AddPermits {
                name: key.name(),
                permits: key.raw(),
                how_many: permits,
                channel: &channel,
            };
            let added = self.change(counter, &script, &channel, timeout);
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
            let channel = channel(latch);
            let script = CountDown {
                latch: key.raw(),
                channel: &channel,
            };
            let (left, unpublished) = self.ask(latch, &script, timeout).await?;
            if unpublished {
                self.publish(channel, OPEN.to_owned());
            }
            Ok(left)
        })
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let channel = channel(counter);
            let script = DeleteCounter {
                counter: counter.key.raw(),
                leases: &leases(counter.key),
                channel: &channel,
                // Publishes the same message as after the last count, because `1` would wake no waiter of Redisson's.
                payload: match counter.kind {
                    CounterKind::Semaphore => "",
                    CounterKind::Latch => OPEN,
                },
            };
            self.change(counter, &script, &channel, timeout).await
        })
    }

    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        Box::pin(self.draw_ids(key, count, secret, timeout))
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        Box::new(self.topics.listen(channel(counter)))
    }
}

/// Parses the rest of a `{'FOREIGN', …}` reply about a counter and its leases.
pub(super) fn foreign_counter<T>(
    items: Items,
    counter: &str,
    leases: &str,
) -> Option<Result<T, Fault>> {
    foreign(items, &[("lock", Some(counter)), ("leases", Some(leases))])
}

/// Parses the rest of a `{'SHORT', …}` reply.
pub(crate) fn too_few<T>(mut items: Items, name: &str) -> Option<Result<T, Fault>> {
    let all = match items.text()?.as_str() {
        "" => None,
        all => Some(all.parse().ok()?),
    };
    items.end(Err(Fault::not_so_many_permits(name, all)))
}

/// The state of a counter that is set, or of a semaphore that has lost its number and has leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterReading {
    value: Option<i64>,
    live: u64,
    ended: u64,
    left: Option<Duration>,
}

impl CounterReading {
    /// Returns the number of free permits, including those whose lease has ended. The next acquire takes those back.
    pub(crate) fn free(self) -> Option<i64> {
        let ended = i64::try_from(self.ended).unwrap_or(i64::MAX);
        Some(self.value?.saturating_add(ended))
    }

    pub(crate) fn seen(self) -> Snapshot {
        Snapshot {
            left: self.left,
            ..Snapshot::of_permits(self.live, self.free())
        }
    }
}

script! {
    "read_counter", "no-writes", ["digits", "time", "refusal", "counter"]
    struct ReadCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {}
    }
    |this, mut items| -> Option<CounterReading> {
        match items.text()?.as_str() {
            "NONE" => items.end(Ok(None)),
            "COUNT" => {
                let reading = CounterReading {
                    value: match items.text()?.as_str() {
                        "" => None,
                        value => Some(value.parse().ok()?),
                    },
                    live: u64::try_from(items.integer()?).ok()?,
                    ended: u64::try_from(items.integer()?).ok()?,
                    left: items.expiry()?,
                };
                items.end(Ok(Some(reading)))
            }
            "FOREIGN" => foreign_counter(items, this.counter, this.leases),
            _ => None,
        }
    }
}

/// The result of a change of a counter, and the message to publish if the script could not publish it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) done: bool,
    pub(super) unpublished: Option<String>,
}

script! {
    "set_counter", ["digits", "range", "refusal", "counter", "by_request", "publish"]
    struct SetCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {
            value: u64,
            channel: &'a str,
            /// An empty payload publishes the value.
            payload: &'a str,
            /// Sets the counter even if it is set.
            again: bool
        }
    }
    |this, mut items| -> Done {
        match items.text()?.as_str() {
            "OK" => {
                let done = items.flag()?;
                let payload = match this.payload {
                    "" => this.value.to_string(),
                    payload => payload.to_owned(),
                };
                let unpublished = (!items.flag()?).then_some(payload);
                items.end(Ok(Done { done, unpublished }))
            }
            "FOREIGN" => foreign_counter(items, this.counter, this.leases),
            _ => None,
        }
    }
}

script! {
    "add_permits", "allow-oom", ["digits", "range", "refusal", "counter", "by_request", "publish"]
    struct AddPermits<'a> {
        local { name: &'a str }
        keys { permits: &'a str }
        args { how_many: i64, channel: &'a str }
    }
    |this, mut items| -> Done {
        match items.text()?.as_str() {
            "OK" => {
                let free = items.text()?;
                let _: i64 = free.parse().ok()?;
                let unpublished = (!items.flag()?).then_some(free);
                items.end(Ok(Done { done: true, unpublished }))
            }
            "SHORT" => too_few(items, this.name),
            "FOREIGN" => foreign_counter(items, this.permits, this.permits),
            _ => None,
        }
    }
}

script! {
    "delete_counter", "allow-oom", ["digits", "refusal", "counter", "publish"]
    struct DeleteCounter<'a> {
        keys { counter: &'a str, leases: &'a str }
        args {
            channel: &'a str,
            /// With an empty payload, no message is published.
            payload: &'a str
        }
    }
    |this, mut items| -> Done {
        match items.text()?.as_str() {
            "OK" => {
                let done = items.flag()?;
                let unpublished = (!items.flag()?).then(|| this.payload.to_owned());
                items.end(Ok(Done { done, unpublished }))
            }
            "FOREIGN" => foreign_counter(items, this.counter, this.leases),
            _ => None,
        }
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
            "FOREIGN" => return foreign_counter(items, this.permits, this.permits),
            _ => return None,
        };
        let time = items.digits()?;
        items.end(Ok(Dated { done, time }))
    }
}

script! {
    "count_down", "allow-oom", ["digits", "refusal", "counter", "publish"]
    struct CountDown<'a> {
        keys { latch: &'a str }
        args { channel: &'a str }
        fixed { payload: OPEN }
    }
    // The count that is left, and whether the message is still to be published.
    |this, mut items| -> (u64, bool) {
        match items.text()?.as_str() {
            "OK" => {
                let left = items.digits()?;
                let unpublished = !items.flag()?;
                items.end(Ok((left, unpublished)))
            }
            "FOREIGN" => foreign_counter(items, this.latch, this.latch),
            _ => None,
        }
    }
}
