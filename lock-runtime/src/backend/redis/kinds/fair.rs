//! A lock that serves its waiters in order: Redisson's `RFairLock`. The hold itself is an exclusive one.

use redis::{Cmd, Value};

use crate::backend::redis::connection::link::Live;
use crate::backend::redis::kinds::exclusive_scripts::{AcquireReply, RELEASED};
use crate::backend::redis::scripting::reply::{Items, foreign, text};
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::redis::{GaveBack, Inner, channel};
use crate::backend::{AcquireRequest, Fault, HoldRef};
use crate::values::clock::Moment;
use crate::values::holder::HolderId;
use crate::values::key::Key;

/// Where one waiter hears that it is its turn.
pub(crate) fn own_channel(key: &Key, holder: HolderId) -> String {
    format!("{}:{}", channel(key), holder.text())
}

/// The keys that make the queue: who waits, in order, and when each is taken for dead.
pub(crate) fn queue_keys(key: &Key) -> [String; 2] {
    ["redisson_lock_queue", "redisson_lock_timeout"].map(|prefix| key.prefixed(prefix))
}

/// Asks once, on that connection.
pub(crate) async fn acquire(
    live: &Live,
    request: &AcquireRequest<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let fence = request.fenced.then(|| key.fence());
    let script = FairAcquire {
        lock: key.raw(),
        queue: &queue_keys(key),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease: request.ttl.millis(),
        not_after,
        waits: request.waits.is_some(),
        channel: &channel(key),
    };
    live.call(&script, now, deadline).await
}

/// Gives back the hold or the place in the queue, on that connection.
pub(crate) async fn release(
    inner: &Inner,
    live: &Live,
    hold_ref: HoldRef<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let script = FairRelease {
        lock: hold_ref.key.raw(),
        queue: &queue_keys(hold_ref.key),
        holder: &hold_ref.holder.text(),
        channel: &channel(hold_ref.key),
    };
    match live.call(&script, now, deadline).await? {
        FairReleaseReply::Done => Ok(GaveBack::Done),
        FairReleaseReply::Unpublished { channel } => {
            inner.publish(channel, RELEASED.to_owned());
            Ok(GaveBack::Done)
        }
        FairReleaseReply::Nothing { time } => Ok(GaveBack::NotHeld { time }),
    }
}

pub(crate) struct FairAcquire<'a> {
    pub(crate) lock: &'a str,
    /// The list and the sorted set.
    pub(crate) queue: &'a [String; 2],
    pub(crate) fence: Option<&'a str>,
    pub(crate) holder: &'a str,
    pub(crate) lease: u64,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
    /// Whether a holder that cannot have the lock gets a place in the queue.
    pub(crate) waits: bool,
    pub(crate) channel: &'a str,
}

impl Script for FairAcquire<'_> {
    type Reply = AcquireReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = [
        "lock, queue, timeouts, fence?",
        "holder, lease_ms, not_after_us, waits, channel",
    ];

    fn source() -> &'static Source {
        source!(
            "fair_acquire",
            [
                "digits", "range", "dated", "refusal", "fence", "lease", "holder", "queue",
                "publish"
            ]
        )
    }

    fn keys(&self) -> usize {
        3 + usize::from(self.fence.is_some())
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.queue).arg(self.fence);
        command.arg(self.holder).arg(self.lease).arg(self.not_after);
        command.arg(u8::from(self.waits)).arg(self.channel);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        let mut items = Items::of(reply)?;
        let reply = match items.text()?.as_str() {
            "OK" => {
                let token = items.token()?;
                if token.is_some() != self.fence.is_some() {
                    return None;
                }
                let time = items.digits()?;
                AcquireReply::Granted { token, time }
            }
            "BUSY" => AcquireReply::Busy {
                left: items.expiry()?,
                time: items.digits()?,
            },
            "QUEUED" => AcquireReply::Queued {
                left: items.expiry()?,
                first: match items.integer()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                time: items.digits()?,
            },
            "STALE" => AcquireReply::Stale {
                time: items.digits()?,
            },
            "FOREIGN" => {
                let [queue, timeouts] = self.queue;
                let keys = [
                    ("lock", Some(self.lock)),
                    ("queue", Some(queue)),
                    ("timeouts", Some(timeouts)),
                    ("fence", self.fence),
                ];
                return foreign(items, &keys);
            }
            _ => return None,
        };
        items.end(Ok(reply))
    }
}

pub(crate) struct FairRelease<'a> {
    pub(crate) lock: &'a str,
    pub(crate) queue: &'a [String; 2],
    pub(crate) holder: &'a str,
    pub(crate) channel: &'a str,
}

#[derive(Debug, PartialEq)]
pub(crate) enum FairReleaseReply {
    Done,
    /// Done, but the first in the queue was not told.
    Unpublished {
        channel: String,
    },
    /// Neither held nor queued.
    Nothing {
        time: u64,
    },
}

impl Script for FairRelease<'_> {
    type Reply = FairReleaseReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock, queue, timeouts", "holder, channel, payload"];

    fn source() -> &'static Source {
        source!(
            "fair_release",
            "allow-oom",
            ["digits", "time", "failed", "queue", "publish"]
        )
    }

    fn keys(&self) -> usize {
        3
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.queue);
        command.arg(self.holder).arg(self.channel).arg(RELEASED);
    }

    fn read(&self, reply: Value) -> Option<Result<FairReleaseReply, Fault>> {
        let mut items = Items::of(reply)?;
        let code = items.integer()?;
        let rest = match (code, items.value()?) {
            // The waiter that was to be told has a name that is no text: it is none of ours.
            (2, Value::BulkString(channel)) if std::str::from_utf8(&channel).is_err() => {
                return items.end(Ok(FairReleaseReply::Done));
            }
            (_, rest) => text(rest)?,
        };
        let reply = match code {
            1 => FairReleaseReply::Done,
            2 if !rest.is_empty() => FairReleaseReply::Unpublished { channel: rest },
            0 => FairReleaseReply::Nothing {
                time: rest.parse().ok()?,
            },
            _ => return None,
        };
        items.end(Ok(reply))
    }
}
