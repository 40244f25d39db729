//! The scripts for callers that hold nothing: looking at a lock, and releasing it by force. As in `scripts`.

use redis::{Cmd, Value};

use crate::backend::redis::CONTROL;
use crate::backend::redis::kinds::exclusive_scripts::RELEASED;
use crate::backend::redis::scripting::reply::{Items, foreign};
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::{Fault, Snapshot};
use crate::values::kind::LockMode;

pub(crate) struct ForceRelease<'a> {
    pub(crate) lock: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) channel: &'a str,
    /// That of the read/write lock of the name.
    pub(crate) rw_channel: &'a str,
}

#[derive(Debug)]
pub(crate) struct ForceReleaseReply {
    pub(crate) released: bool,
    /// Holders that were too many to be told: they learn of it at their next renewals.
    pub(crate) untold: i64,
    /// Channel and payload of what could not be published.
    pub(crate) unpublished: Vec<(String, String)>,
}

impl Script for ForceRelease<'_> {
    type Reply = ForceReleaseReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = [
        "lock, queue",
        "channel, payload, control_channel, rw_channel",
    ];

    fn source() -> &'static Source {
        source!(
            "force_release",
            "allow-oom",
            [
                "digits",
                "refusal",
                "holder",
                "mode",
                "timeout_key",
                "readers",
                "publish",
                "tell"
            ]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.lock)
            .arg(self.queue)
            .arg(self.channel)
            .arg(RELEASED)
            .arg(CONTROL)
            .arg(self.rw_channel);
    }

    fn read(&self, reply: Value) -> Option<Result<ForceReleaseReply, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {}
            "FOREIGN" => return foreign(items, &[("lock", Some(self.lock))]),
            _ => return None,
        }
        let released = match items.integer()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let untold = items.integer().filter(|untold| *untold >= 0)?;
        let unpublished = items.messages()?;
        Some(Ok(ForceReleaseReply {
            released,
            untold,
            unpublished,
        }))
    }
}

pub(crate) struct Inspect<'a> {
    pub(crate) lock: &'a str,
    pub(crate) queue: &'a str,
}

impl Script for Inspect<'_> {
    type Reply = Option<Snapshot>;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock, queue", ""];

    fn source() -> &'static Source {
        source!(
            "inspect",
            "no-writes",
            [
                "digits",
                "refusal",
                "holder",
                "mode",
                "timeout_key",
                "readers"
            ]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.queue);
    }

    fn read(&self, reply: Value) -> Option<Result<Option<Snapshot>, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "FREE" => items.end(Ok(None)),
            "HELD" => {
                let Value::BulkString(holder) = items.value()? else {
                    return None;
                };
                let Ok(holder) = String::from_utf8(holder) else {
                    return Some(Err(Fault::Foreign {
                        key: self.lock.to_owned(),
                        why: "its holder has a name that is no text".to_owned(),
                    }));
                };
                let count = items.digits()?;
                let left = items.expiry()?;
                let (mode, number) = (items.text()?, items.integer()?);
                let number = u64::try_from(number).ok()?;
                let (mode, queued, readers) = match mode.as_str() {
                    "exclusive" if number > 0 => (LockMode::Fair, number, 0),
                    "exclusive" => (LockMode::Exclusive, 0, 0),
                    "read" => (LockMode::Read, 0, number),
                    "write" => (LockMode::Write, 0, 0),
                    _ => return None,
                };
                items.end(Ok(Some(Snapshot {
                    mode,
                    holder: Some(holder),
                    count,
                    left,
                    available: None,
                    queued,
                    readers,
                })))
            }
            "FOREIGN" => foreign(items, &[("lock", Some(self.lock))]),
            _ => None,
        }
    }
}
