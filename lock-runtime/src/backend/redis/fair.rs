//! A lock that serves its waiters in order: Redisson's `RFairLock`. The hold itself is an exclusive one.

use redis::{Cmd, Value};

use super::link::Live;
use super::reply::{Items, foreign, text};
use super::script::{Script, Source, source};
use super::scripts::{AcquireReply, RELEASED};
use super::{GaveBack, Inner, channel};
use crate::backend::{Claim, Fault, Stake};
use crate::clock::Moment;
use crate::holder::HolderId;
use crate::key::Key;

/// Where one waiter hears that it is its turn.
pub(super) fn own_channel(key: &Key, holder: HolderId) -> String {
    format!("{}:{}", channel(key), holder.text())
}

/// The keys that make the queue: who waits, in order, and when each is taken for dead.
pub(super) fn queue_keys(key: &Key) -> [String; 2] {
    ["redisson_lock_queue", "redisson_lock_timeout"].map(|prefix| key.prefixed(prefix))
}

/// Asks once, on that connection.
pub(super) async fn acquire(
    live: &Live,
    claim: &Claim<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let Stake { key, holder, .. } = claim.stake;
    let fence = claim.fenced.then(|| key.fence());
    let script = FairAcquire {
        lock: key.raw(),
        queue: &queue_keys(key),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease: claim.term.millis(),
        not_after,
        waits: claim.waits.is_some(),
        channel: &channel(key),
    };
    live.call(&script, now, deadline).await
}

/// Gives back the hold or the place in the queue, on that connection.
pub(super) async fn release(
    inner: &Inner,
    live: &Live,
    stake: Stake<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let script = FairRelease {
        lock: stake.key.raw(),
        queue: &queue_keys(stake.key),
        holder: &stake.holder.text(),
        channel: &channel(stake.key),
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

pub(super) struct FairAcquire<'a> {
    pub(super) lock: &'a str,
    /// The list and the sorted set.
    pub(super) queue: &'a [String; 2],
    pub(super) fence: Option<&'a str>,
    pub(super) holder: &'a str,
    pub(super) lease: u64,
    /// In µs of the server's TIME.
    pub(super) not_after: u64,
    /// Whether a holder that cannot have the lock gets a place in the queue.
    pub(super) waits: bool,
    pub(super) channel: &'a str,
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

pub(super) struct FairRelease<'a> {
    pub(super) lock: &'a str,
    pub(super) queue: &'a [String; 2],
    pub(super) holder: &'a str,
    pub(super) channel: &'a str,
}

#[derive(Debug, PartialEq)]
pub(super) enum FairReleaseReply {
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
