//! The scripts of leased permits: keys, arguments and replies, as in `scripts`.

use redis::{Cmd, Value};

use super::counter_scripts::{Keys, too_few};
use crate::backend::redis::CONTROL;
use crate::backend::redis::kinds::exclusive_scripts::{AcquireReply, ReleaseReply};
use crate::backend::redis::scripting::reply::Items;
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::{Fault, Renewed};

pub(crate) struct AcquirePermits<'a> {
    pub(crate) keys: Keys<'a>,
    /// As the user knows the semaphore.
    pub(crate) name: &'a str,
    /// 16 bytes for each permit.
    pub(crate) ids: &'a [u8],
    pub(crate) lease: u64,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
    pub(crate) channel: &'a str,
}

impl Script for AcquirePermits<'_> {
    type Reply = AcquireReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["permits, leases", "ids, lease_ms, not_after_us, channel"];

    fn source() -> &'static Source {
        source!(
            "acquire_permits",
            [
                "digits", "range", "dated", "failed", "refusal", "counter", "publish"
            ]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
        command
            .arg(self.ids)
            .arg(self.lease)
            .arg(self.not_after)
            .arg(self.channel);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        let mut items = Items::of(reply)?;
        let reply = match items.text()?.as_str() {
            "OK" => AcquireReply::Granted {
                token: None,
                time: items.digits()?,
            },
            "BUSY" => AcquireReply::Busy {
                left: items.expiry()?,
                time: items.digits()?,
            },
            "STALE" => AcquireReply::Stale {
                time: items.digits()?,
            },
            "SHORT" => return too_few(items, self.name),
            "FOREIGN" => return self.keys.foreign(items),
            _ => return None,
        };
        items.end(Ok(reply))
    }
}

pub(crate) struct ReleasePermits<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) ids: &'a [u8],
    pub(crate) channel: &'a str,
}

/// How it went, and what to publish if the script could not.
#[derive(Debug)]
pub(crate) struct ReleasePermitsReply {
    pub(crate) released: ReleaseReply,
    pub(crate) unpublished: Option<String>,
}

impl Script for ReleasePermits<'_> {
    type Reply = ReleasePermitsReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["permits, leases", "ids, channel"];

    fn source() -> &'static Source {
        source!(
            "release_permits",
            "allow-oom",
            [
                "digits", "range", "time", "failed", "refusal", "counter", "publish"
            ]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
        command.arg(self.ids).arg(self.channel);
    }

    fn read(&self, reply: Value) -> Option<Result<ReleasePermitsReply, Fault>> {
        let mut items = Items::of(reply)?;
        let code = items.integer()?;
        let said = items.text()?;
        let (released, unpublished) = match code {
            1 => (ReleaseReply::Done, None),
            2 => (ReleaseReply::Unpublished, Some(said)),
            0 => {
                let time = said.parse().ok()?;
                (ReleaseReply::NotHeld { time }, None)
            }
            _ => return None,
        };
        items.end(Ok(ReleasePermitsReply {
            released,
            unpublished,
        }))
    }
}

pub(crate) struct RenewPermits<'a> {
    /// Key of the leases, ids, ttl in ms.
    pub(crate) items: &'a [(String, Vec<u8>, i64)],
}

impl Script for RenewPermits<'_> {
    type Reply = Vec<Renewed>;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["leases...", "(ids, ttl_ms)..."];

    fn source() -> &'static Source {
        source!(
            "renew_permits",
            "allow-oom",
            ["digits", "range", "time", "each"]
        )
    }

    fn keys(&self) -> usize {
        self.items.len()
    }

    fn write(&self, command: &mut Cmd) {
        for (leases, _, _) in self.items {
            command.arg(leases);
        }
        for (_, ids, ttl) in self.items {
            command.arg(ids.as_slice()).arg(*ttl);
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Vec<Renewed>, Fault>> {
        crate::backend::redis::kinds::exclusive_scripts::read_renewals(self.items.len(), reply)
    }
}

pub(crate) struct ForcePermits<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) channel: &'a str,
}

#[derive(Debug)]
pub(crate) struct ForcePermitsReply {
    pub(crate) permits: i64,
    /// How many are still leased: ask again.
    pub(crate) left: i64,
    /// Channel and payload of what could not be published.
    pub(crate) unpublished: Vec<(String, String)>,
}

impl Script for ForcePermits<'_> {
    type Reply = ForcePermitsReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["permits, leases", "channel, control_channel"];

    fn source() -> &'static Source {
        source!(
            "force_permits",
            "allow-oom",
            ["digits", "failed", "refusal", "counter", "publish", "tell"]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        self.keys.write(command);
        command.arg(self.channel).arg(CONTROL);
    }

    fn read(&self, reply: Value) -> Option<Result<ForcePermitsReply, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {}
            "FOREIGN" => return self.keys.foreign(items),
            _ => return None,
        }
        let permits = items.integer().filter(|permits| *permits >= 0)?;
        let left = items.integer().filter(|left| *left >= 0)?;
        let unpublished = items.messages()?;
        Some(Ok(ForcePermitsReply {
            permits,
            left,
            unpublished,
        }))
    }
}
