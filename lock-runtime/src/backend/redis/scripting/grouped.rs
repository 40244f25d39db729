//! Acquires and releases of many mutexes that share a script. Each gets an answer of its own.

use std::time::Duration;

use redis::{Cmd, Value};

use super::outcomes::{AcquireReply, Announced, ReleaseReply, release_reply};
use super::{Items, Script, Source, expiry, lua, source};
use crate::backend::Fault;
use crate::backend::redis::pubsub::messages::channel;
use crate::values::{FencingToken, HolderId, Key, decimal};

/// One acquire that shares its script.
#[derive(Debug)]
pub(crate) struct OneAcquire {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    /// In µs of the server's TIME.
    pub(crate) not_after_us: u64,
}

/// The terms that acquires must have in common to share a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquireTerms {
    pub(super) lease_ms: u64,
    /// Whether the acquires want tokens.
    pub(super) fenced: bool,
    /// The number of binary digits of the milliseconds that are left for an answer. The whole group gets the earliest
    /// deadline among its requests, which would be too early for requests with far more time.
    pub(super) time_left: u32,
}

impl AcquireTerms {
    pub(crate) fn new(lease_ms: u64, fenced: bool, left: Duration) -> AcquireTerms {
        AcquireTerms {
            lease_ms,
            fenced,
            time_left: left.as_millis().checked_ilog2().unwrap_or(0),
        }
    }
}

/// One release that shares its script.
#[derive(Debug)]
pub(crate) struct OneRelease {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
}

/// A script for many requests. It answers each of them: `None` if it did nothing for a request, which then has to be
/// sent by itself.
#[derive(Debug)]
pub(crate) struct Each<T, Terms> {
    pub(crate) terms: Terms,
    pub(crate) all: Vec<T>,
}

pub(crate) type AcquireEach = Each<OneAcquire, AcquireTerms>;
pub(crate) type ReleaseEach = Each<OneRelease, ()>;

impl Script for AcquireEach {
    type Reply = Vec<Option<AcquireReply>>;

    fn source() -> &'static Source {
        source!("acquire_each", ["common_case"])
    }

    fn keys(&self) -> usize {
        if self.terms.fenced {
            2 * self.all.len()
        } else {
            self.all.len()
        }
    }

    fn write(&self, command: &mut Cmd) {
        for one in &self.all {
            command.arg(one.key.raw());
        }
        if self.terms.fenced {
            for one in &self.all {
                command.arg(one.key.fence());
            }
        }
        let dates = self.all.iter().map(|one| one.not_after_us);
        command
            .arg(self.terms.lease_ms)
            .arg(dates.min().unwrap_or(0));
        for one in &self.all {
            command.arg(one.holder.text());
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        let mut items = Items::of(reply)?;
        let is_usual = items.is_lone();
        let time = items.digits()?;
        let granted = |token| {
            let token = FencingToken::checked(token)?;
            let token = self.terms.fenced.then_some(token);
            Some(AcquireReply::Granted {
                token,
                time,
                tenure: None,
            })
        };
        let mut answers = Vec::with_capacity(self.all.len());
        for _ in &self.all {
            if is_usual {
                answers.push(Some(granted(time)?));
                continue;
            }
            answers.push(match items.value()? {
                Value::Nil => None,
                Value::Int(left) => Some(AcquireReply::Busy {
                    left: expiry(left)?,
                    kept: false,
                    first: None,
                    time,
                }),
                Value::BulkString(token) => Some(granted(decimal::parse(&token)?)?),
                _ => return None,
            });
        }
        items.end(Ok(answers))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        ["lock..., fence...", "lease_ms, not_after_us, holder..."].map(str::to_owned)
    }
}

impl Script for ReleaseEach {
    type Reply = Vec<Option<Announced<ReleaseReply>>>;

    fn source() -> &'static Source {
        source!("release_each", "allow-oom", ["publish", "publish_release"])
    }

    fn keys(&self) -> usize {
        self.all.len()
    }

    fn write(&self, command: &mut Cmd) {
        for one in &self.all {
            command.arg(one.key.raw());
        }
        for one in &self.all {
            command.arg(one.holder.text()).arg(channel(&one.key));
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        let mut items = Items::of(reply)?;
        let is_usual = items.is_lone() && items.integer()? == 1;
        let mut answers = Vec::with_capacity(self.all.len());
        for _ in &self.all {
            if is_usual {
                answers.push(Some(Announced::DONE));
                continue;
            }
            answers.push(match items.value()? {
                Value::Int(0) => None,
                answer => Some(release_reply(Items::of(answer)?)?.ok()?),
            });
        }
        items.end(Ok(answers))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        ["lock...", "(holder, channel)..."].map(str::to_owned)
    }
}
