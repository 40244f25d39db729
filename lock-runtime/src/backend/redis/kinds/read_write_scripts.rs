//! The scripts of read/write locks: one struct per operation with its keys, arguments and reply.

use redis::{Cmd, Value};

use crate::backend::redis::kinds::exclusive_scripts::{
    AcquireReply, ReleaseReply, acquire_reply, read_renewals, release_reply,
};
use crate::backend::redis::scripting::{Script, Source, source};
use crate::backend::{Fault, Renewed, TIME_TO_COME};

pub(crate) struct ReadAcquire<'a> {
    pub(crate) lock: &'a str,
    pub(crate) timeout: &'a str,
    pub(crate) writer_waits: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) lease: u64,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
}

impl Script for ReadAcquire<'_> {
    type Reply = AcquireReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = [
        "lock, timeout, writer_waits",
        "holder, lease_ms, not_after_us",
    ];

    fn source() -> &'static Source {
        source!(
            "read_acquire",
            [
                "digits", "range", "dated", "failed", "refusal", "holder", "mode", "lease"
            ]
        )
    }

    fn keys(&self) -> usize {
        3
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.lock)
            .arg(self.timeout)
            .arg(self.writer_waits);
        command.arg(self.holder).arg(self.lease).arg(self.not_after);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        acquire_reply(reply, self.lock, None)
    }
}

pub(crate) struct WriteAcquire<'a> {
    pub(crate) lock: &'a str,
    pub(crate) writer_waits: &'a str,
    pub(crate) fence: Option<&'a str>,
    pub(crate) holder: &'a str,
    pub(crate) lease: u64,
    /// In µs of the server's TIME.
    pub(crate) not_after: u64,
    /// For so many ms, if it is busy, further readers are kept out.
    pub(crate) waits: u64,
}

impl Script for WriteAcquire<'_> {
    type Reply = AcquireReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = [
        "lock, writer_waits, fence?",
        "holder, lease_ms, not_after_us, waits_ms",
    ];

    fn source() -> &'static Source {
        source!(
            "write_acquire",
            [
                "digits",
                "range",
                "dated",
                "refusal",
                "fence",
                "holder",
                "mode",
                "lease",
                "timeout_key",
                "readers"
            ]
        )
    }

    fn keys(&self) -> usize {
        2 + usize::from(self.fence.is_some())
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.lock)
            .arg(self.writer_waits)
            .arg(self.fence);
        command
            .arg(self.holder)
            .arg(self.lease)
            .arg(self.not_after)
            .arg(self.waits);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        acquire_reply(reply, self.lock, self.fence)
    }
}

pub(crate) struct ReadWriteRelease<'a> {
    pub(crate) lock: &'a str,
    pub(crate) timeout: &'a str,
    pub(crate) writer_waits: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) channel: &'a str,
}

impl Script for ReadWriteRelease<'_> {
    type Reply = ReleaseReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = [
        "lock, timeout, writer_waits",
        "holder, channel, time_to_come_ms",
    ];

    fn source() -> &'static Source {
        source!(
            "read_write_release",
            "allow-oom",
            [
                "digits",
                "time",
                "failed",
                "timeout_key",
                "holder",
                "readers",
                "publish"
            ]
        )
    }

    fn keys(&self) -> usize {
        3
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.lock)
            .arg(self.timeout)
            .arg(self.writer_waits)
            .arg(self.holder)
            .arg(self.channel)
            .arg(u64::try_from(TIME_TO_COME.as_millis()).unwrap_or(u64::MAX));
    }

    fn read(&self, reply: Value) -> Option<Result<ReleaseReply, Fault>> {
        release_reply(reply)
    }
}

pub(crate) struct Downgrade<'a> {
    pub(crate) lock: &'a str,
    pub(crate) timeout: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) lease: u64,
    pub(crate) channel: &'a str,
}

impl Script for Downgrade<'_> {
    type Reply = ReleaseReply;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["lock, timeout", "holder, lease_ms, channel"];

    fn source() -> &'static Source {
        source!(
            "read_write_downgrade",
            "allow-oom",
            ["digits", "range", "failed", "publish"]
        )
    }

    fn keys(&self) -> usize {
        2
    }

    fn write(&self, command: &mut Cmd) {
        command.arg(self.lock).arg(self.timeout);
        command.arg(self.holder).arg(self.lease).arg(self.channel);
    }

    fn read(&self, reply: Value) -> Option<Result<ReleaseReply, Fault>> {
        release_reply(reply)
    }
}

pub(crate) struct ReadRenew<'a> {
    /// Key, timeout key, holder, ttl in ms.
    pub(crate) items: &'a [(&'a str, String, String, i64)],
}

impl Script for ReadRenew<'_> {
    type Reply = Vec<Renewed>;
    #[cfg(test)]
    const SHAPE: [&'static str; 2] = ["(lock, timeout)...", "(holder, ttl_ms)..."];

    fn source() -> &'static Source {
        source!(
            "read_renew",
            "allow-oom",
            ["digits", "range", "lease", "mark", "each"]
        )
    }

    fn keys(&self) -> usize {
        self.items.len() * 2
    }

    fn write(&self, command: &mut Cmd) {
        for (lock, timeout, _, _) in self.items {
            command.arg(*lock).arg(timeout.as_str());
        }
        for (_, _, holder, ttl) in self.items {
            command.arg(holder.as_str()).arg(*ttl);
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Vec<Renewed>, Fault>> {
        read_renewals(self.items.len(), reply)
    }
}
