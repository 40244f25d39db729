//! Many readers or one writer: Redisson's `RReadWriteLock`.

use std::time::Duration;

use super::request::{Releasing, Sending};
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::exclusive::Renew;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, Announced, ReleaseReply, acquire_reply, read_renewals, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, renewal, script, source};
use crate::backend::{Fault, HoldRef, READERS_KEPT_OUT, Released, Renewed};
use crate::values::{HolderId, Key, Kind, Ttl, clock};

/// Returns the key that carries the lease of a reader's first hold. Readers of this library have one hold each.
pub(crate) fn timeout_key(key: &Key, holder: HolderId) -> String {
    key.suffixed(&(holder.text() + ":rwlock_timeout:1"))
}

/// Sends the request once.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let request = sending.request;
    let HoldRef { key, holder, .. } = request.hold_ref;
    let writer_waits = key.writer_waits();
    if key.kind() == Kind::Read {
        let script = ReadAcquire {
            lock: key.raw(),
            timeout: &timeout_key(key, holder),
            writer_waits: &writer_waits,
            holder: &holder.text(),
            lease_ms: request.ttl.millis(),
            not_after_us: sending.not_after,
        };
        let later = [ReadWriteRelease::source(), ReadRenew::source()];
        return sending.call_before(&later, || None, &script).await;
    }
    let waits = request.waits.unwrap_or_default().min(READERS_KEPT_OUT);
    let fence = sending.fence();
    let script = WriteAcquire {
        lock: key.raw(),
        writer_waits: &writer_waits,
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease_ms: request.ttl.millis(),
        not_after_us: sending.not_after,
        waits_ms: u64::try_from(waits.as_millis()).unwrap_or(u64::MAX),
    };
    let later = [
        ReadWriteRelease::source(),
        Renew::source(),
        ReadWriteDowngrade::source(),
    ];
    let timeout = || Some(timeout_key(key, holder));
    sending.call_before(&later, timeout, &script).await
}

/// Releases a read or a write, on the connection of `releasing`.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let hold_ref = releasing.hold_ref;
    let script = ReadWriteRelease {
        lock: hold_ref.key.raw(),
        timeout: &timeout_key(hold_ref.key, hold_ref.holder),
        holder: &hold_ref.holder.text(),
        channel: &channel(hold_ref.key),
    };
    releasing.call(&script).await
}

impl Router {
    pub(crate) async fn downgrade(
        &self,
        hold_ref: HoldRef<'_>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Result<Released, Fault> {
        let script = ReadWriteDowngrade {
            lock: hold_ref.key.raw(),
            timeout: &timeout_key(hold_ref.key, hold_ref.holder),
            holder: &hold_ref.holder.text(),
            lease_ms: ttl.millis(),
            channel: &channel(hold_ref.key),
        };
        let before = self.nodes.live();
        let deadline = clock::now() + timeout;
        let reply = self.call(hold_ref.key, &script, timeout).await?;
        self.publish_all(reply.unpublished);
        let released = reply.done.released;
        if released == Released::NotHeld {
            self.vouch(before, deadline).await?;
        }
        Ok(released)
    }
}

script! {
    "read_acquire", ["digits", "range", "failed", "refusal", "fence", "admitted", "holder", "mode", "lease"]
    struct ReadAcquire<'a> {
        keys { lock: &'a str, timeout: &'a str, writer_waits: &'a str }
        args { holder: &'a str, lease_ms: u64, not_after_us: u64 }
    }
    |_, mut items| -> AcquireReply {
        let word = items.text()?;
        acquire_reply(&word, items, false, false)
    }
}

script! {
    "write_acquire",
    [
        "digits", "range", "refusal", "fence", "admitted", "holder", "mode", "lease", "timeout_key",
        "readers"
    ]
    struct WriteAcquire<'a> {
        keys { lock: &'a str, writer_waits: &'a str, fence: Option<&'a str> }
        args {
            holder: &'a str,
            lease_ms: u64,
            not_after_us: u64,
            /// The time for which new readers are kept out if the lock is busy.
            waits_ms: u64
        }
    }
    |this, mut items| -> AcquireReply {
        let word = items.text()?;
        acquire_reply(&word, items, this.fence.is_some(), false)
    }
}

script! {
    "read_write_release", "allow-oom",
    ["digits", "time", "failed", "timeout_key", "holder", "readers", "publish", "publish_release"]
    struct ReadWriteRelease<'a> {
        keys { lock: &'a str, timeout: &'a str }
        args { holder: &'a str, channel: &'a str }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}

script! {
    "read_write_downgrade", "allow-oom", ["digits", "range", "failed", "publish"]
    struct ReadWriteDowngrade<'a> {
        keys { lock: &'a str, timeout: &'a str }
        args { holder: &'a str, lease_ms: u64, channel: &'a str }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}

renewal! {
    "read_renew", ["digits", "range", "lease", "mark", "each"]
    struct ReadRenew<'a> {
        keys { lock: &'a str, timeout: String }
        arg { holder: String }
    }
}
