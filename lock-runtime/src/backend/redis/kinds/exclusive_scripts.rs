//! The script table: one struct per operation with its keys, arguments and reply.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::backend::redis::GaveBack;
use crate::backend::redis::connection::link::Live;
use crate::backend::redis::scripting::faults;
use crate::backend::redis::scripting::reply::{Items, foreign, text};
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::{Fault, Renewed};
use crate::values::fence::FencingToken;

/// What is published on a lock's channel. Redisson decodes an integer and ignores all but 0 and 1.
pub(crate) const RELEASED: &str = "0";

fn fence_key(fence: Option<&str>) -> usize {
    1 + usize::from(fence.is_some())
}

pub(crate) struct Acquire<'a> {
    pub(crate) lock: &'a str,
    pub(crate) fence: Option<&'a str>,
    pub(crate) holder: &'a str,
    pub(crate) lease: u64,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
    /// The fence counts by one, as Redisson's does, instead of by the clock.
    pub(crate) counted: bool,
}

/// `time`: µs of the server's TIME.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    Granted {
        token: Option<FencingToken>,
        time: u64,
    },
    Busy {
        left: Option<Duration>,
        time: u64,
    },
    /// Only of a fair lock.
    Queued {
        left: Option<Duration>,
        first: bool,
        time: u64,
    },
    Stale {
        time: u64,
    },
}

impl Script for Acquire<'_> {
    type Reply = AcquireReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock, fence?", "holder, lease_ms, not_after_us, counted?"];

    fn source() -> &'static Source {
        source!(
            "acquire",
            [
                "digits", "range", "dated", "refusal", "fence", "lease", "holder"
            ]
        )
    }

    fn keys(&self) -> usize {
        fence_key(self.fence)
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.fence);
        command.arg(self.holder).arg(self.lease).arg(self.not_after);
        command.arg(self.counted.then_some(1));
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        acquire_reply(reply, self.lock, self.fence)
    }
}

/// What every acquire answers; a token if a fence was named.
pub(crate) fn acquire_reply(
    reply: Value,
    lock: &str,
    fence: Option<&str>,
) -> Option<Result<AcquireReply, Fault>> {
    let mut items = Items::of(reply)?;
    let reply = match items.text()?.as_str() {
        "OK" => {
            let token = items.token()?;
            if token.is_some() != fence.is_some() {
                return None;
            }
            AcquireReply::Granted {
                token,
                time: items.digits()?,
            }
        }
        "BUSY" => AcquireReply::Busy {
            left: items.expiry()?,
            time: items.digits()?,
        },
        "STALE" => AcquireReply::Stale {
            time: items.digits()?,
        },
        "FOREIGN" => return foreign(items, &[("lock", Some(lock)), ("fence", fence)]),
        _ => return None,
    };
    items.end(Ok(reply))
}

pub(crate) struct NextToken<'a> {
    pub(crate) fence: &'a str,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
    pub(crate) counted: bool,
}

#[derive(Debug)]
pub(crate) enum NextTokenReply {
    Taken { token: FencingToken, time: u64 },
    Stale { time: u64 },
}

impl Script for NextToken<'_> {
    type Reply = NextTokenReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["fence", "not_after_us, counted?"];

    fn source() -> &'static Source {
        source!("next_token", ["digits", "dated", "refusal", "fence"])
    }

    fn keys(&self) -> usize {
        1
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.fence).arg(self.not_after);
        command.arg(self.counted.then_some(1));
    }

    fn read(&self, reply: Value) -> Option<Result<NextTokenReply, Fault>> {
        let mut items = Items::of(reply)?;
        let reply = match items.text()?.as_str() {
            "OK" => NextTokenReply::Taken {
                token: items.token()??,
                time: items.digits()?,
            },
            "STALE" => NextTokenReply::Stale {
                time: items.digits()?,
            },
            "FOREIGN" => return foreign(items, &[("fence", Some(self.fence))]),
            _ => return None,
        };
        items.end(Ok(reply))
    }
}

pub(crate) struct Release<'a> {
    pub(crate) lock: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) channel: &'a str,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ReleaseReply {
    Done,
    /// Done, but nobody was told.
    Unpublished,
    NotHeld {
        time: u64,
    },
}

impl ReleaseReply {
    /// While a slot moves, those who listen do so at the node that still has it: they did not hear what a script
    /// published at the other.
    pub(crate) fn heard_of(self, live: &Live) -> ReleaseReply {
        match self {
            ReleaseReply::Done if live.asking => ReleaseReply::Unpublished,
            reply => reply,
        }
    }

    /// What the backend says of it; `publish` is called if nobody was told.
    pub(crate) fn gave_back(self, publish: impl FnOnce()) -> GaveBack {
        match self {
            ReleaseReply::Done => GaveBack::Done,
            ReleaseReply::Unpublished => {
                publish();
                GaveBack::Done
            }
            ReleaseReply::NotHeld { time } => GaveBack::NotHeld { time },
        }
    }
}

impl Script for Release<'_> {
    type Reply = ReleaseReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock", "holder, channel, payload"];

    fn source() -> &'static Source {
        source!(
            "release",
            "allow-oom",
            ["digits", "time", "failed", "publish"]
        )
    }

    fn keys(&self) -> usize {
        1
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.lock)
            .arg(self.holder)
            .arg(self.channel)
            .arg(RELEASED);
    }

    fn read(&self, reply: Value) -> Option<Result<ReleaseReply, Fault>> {
        release_reply(reply)
    }
}

/// What every release answers.
pub(crate) fn release_reply(reply: Value) -> Option<Result<ReleaseReply, Fault>> {
    let mut items = Items::of(reply)?;
    let code = items.integer()?;
    let time = items.text()?;
    let reply = match code {
        1 => ReleaseReply::Done,
        2 => ReleaseReply::Unpublished,
        0 => ReleaseReply::NotHeld {
            time: time.parse().ok()?,
        },
        _ => return None,
    };
    items.end(Ok(reply))
}

pub(crate) struct HandOver<'a> {
    pub(crate) lock: &'a str,
    pub(crate) fence: Option<&'a str>,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) lease: u64,
    /// Its subscribers are counted.
    pub(crate) channel: &'a str,
    pub(crate) counted: bool,
}

#[derive(Debug)]
pub(crate) enum HandOverReply {
    Done {
        token: Option<FencingToken>,
        time: u64,
        subscribers: Option<u64>,
    },
    NotHeld,
}

impl Script for HandOver<'_> {
    type Reply = HandOverReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock, fence?", "from, to, lease_ms, channel, counted?"];

    fn source() -> &'static Source {
        source!(
            "handover",
            "allow-oom",
            [
                "digits",
                "range",
                "time",
                "failed",
                "refusal",
                "fence",
                "lease",
                "listeners"
            ]
        )
    }

    fn keys(&self) -> usize {
        fence_key(self.fence)
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.fence);
        command
            .arg(self.from)
            .arg(self.to)
            .arg(self.lease)
            .arg(self.channel)
            .arg(self.counted.then_some(1));
    }

    fn read(&self, reply: Value) -> Option<Result<HandOverReply, Fault>> {
        let mut items = Items::of(reply)?;
        let reply = match items.text()?.as_str() {
            "OK" => {
                let token = items.token()?;
                if token.is_some() != self.fence.is_some() {
                    return None;
                }
                let time = items.digits()?;
                // -1: the ACL does not allow to ask.
                let subscribers = u64::try_from(items.integer()?).ok();
                HandOverReply::Done {
                    token,
                    time,
                    subscribers,
                }
            }
            "LOST" => HandOverReply::NotHeld,
            "FOREIGN" => {
                return foreign(items, &[("lock", Some(self.lock)), ("fence", self.fence)]);
            }
            _ => return None,
        };
        items.end(Ok(reply))
    }
}

pub(crate) struct Renew<'a> {
    /// Key, holder, ttl in ms.
    pub(crate) items: &'a [(&'a str, String, i64)],
}

impl Script for Renew<'_> {
    type Reply = Vec<Renewed>;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock...", "(holder, ttl_ms)..."];

    fn source() -> &'static Source {
        source!(
            "renew",
            "allow-oom",
            ["digits", "range", "lease", "mark", "each"]
        )
    }

    fn keys(&self) -> usize {
        self.items.len()
    }

    fn write(&self, command: &mut Cmd) {
        for (lock, _, _) in self.items {
            command.arg(*lock);
        }
        for (_, holder, ttl) in self.items {
            command.arg(holder.as_str()).arg(*ttl);
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Vec<Renewed>, Fault>> {
        read_renewals(self.items.len(), reply)
    }
}

/// Reads one answer for each of so many items.
pub(crate) fn read_renewals(expected: usize, reply: Value) -> Option<Result<Vec<Renewed>, Fault>> {
    let mut items = Items::of(reply)?;
    let mut answers = Vec::with_capacity(expected);
    let mut failed = None;
    for _ in 0..expected {
        answers.push(match items.value()? {
            Value::Int(1) => Renewed::Held,
            Value::Int(0) => Renewed::NotHeld,
            error => {
                failed.get_or_insert(faults::of_text(&text(error)?));
                Renewed::Unknown
            }
        });
    }
    // One bad key is its own trouble; if all of them fail, it is the call that failed.
    if let Some(fault) = failed {
        if answers.iter().all(|answer| *answer == Renewed::Unknown) {
            return Some(Err(fault));
        }
        tracing::warn!(%fault, "some keys of a renewal failed; they are renewed again");
    }
    items.end(Ok(answers))
}
