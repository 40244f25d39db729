//! Acquires and releases of many mutexes that share a script. Each is answered by itself.

use redis::{Cmd, Value};

use super::replies::{AcquireReply, RELEASED, ReleaseReply};
use crate::backend::Fault;
use crate::backend::redis::scripting::reply::expiry;
use crate::backend::redis::scripting::{Items, Script, Source, lua, source};
use crate::values::{FencingToken, HolderId, decimal};

/// One acquire of those that share a script.
#[derive(Debug)]
pub(crate) struct OneAcquire {
    pub(crate) lock: Box<str>,
    pub(crate) fence: Option<String>,
    pub(crate) holder: HolderId,
    pub(crate) lease_ms: u64,
    /// By the server's TIME.
    pub(crate) not_after_us: u64,
}

/// One release of those that share a script.
#[derive(Debug)]
pub(crate) struct OneRelease {
    pub(crate) lock: Box<str>,
    pub(crate) holder: HolderId,
    pub(crate) channel: String,
}

/// The script of many. It answers each; `None` where nothing was done, and the script of one has to be asked.
#[derive(Debug)]
pub(crate) struct Each<T>(pub(crate) Vec<T>);

impl Script for Each<OneAcquire> {
    type Reply = Vec<Option<AcquireReply>>;

    fn source() -> &'static Source {
        source!("acquire_each", ["usually"])
    }

    fn keys(&self) -> usize {
        self.0.len() + self.0.iter().filter(|one| one.fence.is_some()).count()
    }

    fn write(&self, command: &mut Cmd) {
        for one in &self.0 {
            command.arg(&*one.lock).arg(one.fence.as_deref());
        }
        for one in &self.0 {
            command
                .arg(one.holder.text())
                .arg(one.lease_ms)
                .arg(one.not_after_us)
                .arg(one.fence.is_some());
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        let mut items = Items::of(reply)?;
        let time = items.digits()?;
        let mut answers = Vec::with_capacity(self.0.len());
        for one in &self.0 {
            answers.push(match items.value()? {
                Value::Nil => None,
                Value::Int(left) => Some(AcquireReply::Busy {
                    left: expiry(left)?,
                    time,
                }),
                Value::BulkString(token) => {
                    let token = FencingToken::checked(decimal::parse(&token)?)?;
                    let token = one.fence.is_some().then_some(token);
                    Some(AcquireReply::Granted { token, time })
                }
                _ => return None,
            });
        }
        items.end(Ok(answers))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        [
            "(lock, fence?)...",
            "(holder, lease_ms, not_after_us, whether a fence is named)...",
        ]
        .map(str::to_owned)
    }
}

impl Script for Each<OneRelease> {
    type Reply = Vec<Option<ReleaseReply>>;

    fn source() -> &'static Source {
        source!("release_each", "allow-oom", ["publish"])
    }

    fn keys(&self) -> usize {
        self.0.len()
    }

    fn write(&self, command: &mut Cmd) {
        for one in &self.0 {
            command.arg(&*one.lock);
        }
        for one in &self.0 {
            command.arg(one.holder.text()).arg(&one.channel);
        }
        command.arg(RELEASED);
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        let mut items = Items::of(reply)?;
        let mut answers = Vec::with_capacity(self.0.len());
        for _ in &self.0 {
            answers.push(match items.integer()? {
                0 => None,
                1 => Some(ReleaseReply::Done),
                2 => Some(ReleaseReply::Unpublished),
                _ => return None,
            });
        }
        items.end(Ok(answers))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        ["lock...", "(holder, channel)..., payload"].map(str::to_owned)
    }
}
