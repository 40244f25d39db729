//! The scripts of counters, a semaphore's or a latch's: keys, arguments and replies, as in `scripts`.

use redis::{Cmd, Value};

use crate::backend::redis::scripting::reply::{Items, foreign};
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::{Fault, Snapshot};
use crate::values::kind::LockMode;

/// A semaphore's two keys: the free permits, and the leased ones with the ends of their leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    pub(crate) count: &'a str,
    pub(crate) leases: &'a str,
}

impl<'a> Keys<'a> {
    /// Of a counter that has no leases, or whose leases do not matter.
    fn of_count(count: &'a str) -> Keys<'a> {
        Keys {
            count,
            leases: count,
        }
    }

    pub(crate) fn write(self, command: &mut Cmd) {
        command.arg(self.count).arg(self.leases);
    }

    /// The rest of a `{'FOREIGN', …}` reply.
    pub(crate) fn foreign<T>(self, items: Items) -> Option<Result<T, Fault>> {
        foreign(
            items,
            &[("lock", Some(self.count)), ("leases", Some(self.leases))],
        )
    }
}

/// The rest of a `{'SHORT', …}` reply.
pub(crate) fn too_few<T>(mut items: Items, name: &str) -> Option<Result<T, Fault>> {
    let all = match items.text()?.as_str() {
        "" => None,
        all => Some(all.parse().ok()?),
    };
    items.end(Err(Fault::too_few(name, all)))
}

/// 0 or 1.
fn flag(items: &mut Items) -> Option<bool> {
    match items.integer()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

pub(crate) struct ReadCounter<'a> {
    pub(crate) keys: Keys<'a>,
}

/// A counter that is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    value: i64,
    live: u64,
    ended: u64,
    left: Option<std::time::Duration>,
}

impl Reading {
    /// What is free, with what the next acquire takes back.
    pub(crate) fn free(self) -> i64 {
        self.value
            .saturating_add(i64::try_from(self.ended).unwrap_or(i64::MAX))
    }

    pub(crate) fn seen(self) -> Snapshot {
        Snapshot {
            mode: if self.live > 0 {
                LockMode::Semaphore
            } else {
                LockMode::Counter
            },
            holder: None,
            count: self.live,
            left: self.left,
            queued: 0,
            available: Some(self.free()),
            readers: 0,
        }
    }
}

impl Script for ReadCounter<'_> {
    type Reply = Option<Reading>;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["counter, leases", ""];

    fn source() -> &'static Source {
        source!(
            "read_counter",
            "no-writes",
            ["digits", "time", "refusal", "counter"]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
    }

    fn read(&self, reply: Value) -> Option<Result<Option<Reading>, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "NONE" => items.end(Ok(None)),
            "COUNT" => {
                let reading = Reading {
                    value: items.text()?.parse().ok()?,
                    live: u64::try_from(items.integer()?).ok()?,
                    ended: u64::try_from(items.integer()?).ok()?,
                    left: items.expiry()?,
                };
                items.end(Ok(Some(reading)))
            }
            "FOREIGN" => self.keys.foreign(items),
            _ => None,
        }
    }
}

/// Whether something was done, and what to publish if the script could not.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) done: bool,
    pub(crate) unpublished: Option<String>,
}

pub(crate) struct SetCounter<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) value: u64,
    /// Also if it is set.
    pub(crate) again: bool,
    pub(crate) channel: &'a str,
    /// `None` publishes the value.
    pub(crate) payload: Option<&'a str>,
}

impl Script for SetCounter<'_> {
    type Reply = Done;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["counter, leases", "value, channel, payload, again"];

    fn source() -> &'static Source {
        source!(
            "set_counter",
            ["digits", "range", "refusal", "counter", "publish"]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
        command
            .arg(self.value)
            .arg(self.channel)
            .arg(self.payload.unwrap_or(""))
            .arg(u8::from(self.again));
    }

    fn read(&self, reply: Value) -> Option<Result<Done, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {
                let done = flag(&mut items)?;
                let payload = self.payload.map_or(self.value.to_string(), str::to_owned);
                let unpublished = (!flag(&mut items)?).then_some(payload);
                items.end(Ok(Done { done, unpublished }))
            }
            "FOREIGN" => self.keys.foreign(items),
            _ => None,
        }
    }
}

pub(crate) struct AddPermits<'a> {
    pub(crate) count: &'a str,
    pub(crate) name: &'a str,
    pub(crate) by: i64,
    pub(crate) channel: &'a str,
}

impl Script for AddPermits<'_> {
    type Reply = Done;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["permits", "how_many, channel"];

    fn source() -> &'static Source {
        source!(
            "add_permits",
            "allow-oom",
            ["digits", "range", "refusal", "counter", "publish"]
        )
    }

    fn keys(&self) -> usize {
        1
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.count).arg(self.by).arg(self.channel);
    }

    fn read(&self, reply: Value) -> Option<Result<Done, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {
                let free = items.text()?;
                let _: i64 = free.parse().ok()?;
                let unpublished = (!flag(&mut items)?).then_some(free);
                items.end(Ok(Done {
                    done: true,
                    unpublished,
                }))
            }
            "SHORT" => too_few(items, self.name),
            "FOREIGN" => Keys::of_count(self.count).foreign(items),
            _ => None,
        }
    }
}

pub(crate) struct DeleteCounter<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) channel: &'a str,
    /// `None` tells nobody.
    pub(crate) payload: Option<&'a str>,
}

impl Script for DeleteCounter<'_> {
    type Reply = Done;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["counter, leases", "channel, payload"];

    fn source() -> &'static Source {
        source!(
            "delete_counter",
            "allow-oom",
            ["digits", "refusal", "counter", "publish"]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
        command.arg(self.channel).arg(self.payload.unwrap_or(""));
    }

    fn read(&self, reply: Value) -> Option<Result<Done, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {
                let done = flag(&mut items)?;
                let payload = self.payload.unwrap_or("").to_owned();
                let unpublished = (!flag(&mut items)?).then_some(payload);
                items.end(Ok(Done { done, unpublished }))
            }
            "FOREIGN" => self.keys.foreign(items),
            _ => None,
        }
    }
}

pub(crate) struct TakePermits<'a> {
    pub(crate) count: &'a str,
    pub(crate) name: &'a str,
    pub(crate) permits: u32,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
}

#[derive(Debug)]
pub(crate) enum TakePermitsReply {
    Taken { time: u64 },
    Busy { time: u64 },
    Stale { time: u64 },
}

impl Script for TakePermits<'_> {
    type Reply = TakePermitsReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["permits", "how_many, not_after_us"];

    fn source() -> &'static Source {
        source!(
            "take_permits",
            ["digits", "range", "dated", "refusal", "counter"]
        )
    }

    fn keys(&self) -> usize {
        1
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.count)
            .arg(self.permits)
            .arg(self.not_after);
    }

    fn read(&self, reply: Value) -> Option<Result<TakePermitsReply, Fault>> {
        let mut items = Items::of(reply)?;
        let word = items.text()?;
        let reply = match word.as_str() {
            "SHORT" => return too_few(items, self.name),
            "FOREIGN" => return Keys::of_count(self.count).foreign(items),
            word => {
                let time = items.digits()?;
                match word {
                    "OK" => TakePermitsReply::Taken { time },
                    "BUSY" => TakePermitsReply::Busy { time },
                    "STALE" => TakePermitsReply::Stale { time },
                    _ => return None,
                }
            }
        };
        items.end(Ok(reply))
    }
}

/// What Redisson publishes when a latch has opened.
pub(crate) const OPEN: &str = "0";

pub(crate) struct CountDown<'a> {
    pub(crate) count: &'a str,
    pub(crate) channel: &'a str,
}

impl Script for CountDown<'_> {
    /// What is left, and whether the message is still to be published.
    type Reply = (u64, bool);
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["latch", "channel, payload"];

    fn source() -> &'static Source {
        source!(
            "count_down",
            "allow-oom",
            ["digits", "refusal", "counter", "publish"]
        )
    }

    fn keys(&self) -> usize {
        1
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.count).arg(self.channel).arg(OPEN);
    }

    fn read(&self, reply: Value) -> Option<Result<(u64, bool), Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {
                let left = items.digits()?;
                let unpublished = !flag(&mut items)?;
                items.end(Ok((left, unpublished)))
            }
            "FOREIGN" => Keys::of_count(self.count).foreign(items),
            _ => None,
        }
    }
}
