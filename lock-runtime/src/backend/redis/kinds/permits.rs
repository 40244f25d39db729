//! Leased permits, Redisson's `RPermitExpirableSemaphore`, and their release by force.

use std::num::NonZeroU64;
use std::time::Duration;

use super::counters::{leases, too_few};
use super::request::{Releasing, Sending};
use crate::backend::redis::pubsub::messages::{channel, channel_of_permits};
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, Announced, ReleaseReply, acquire_reply, read_renewals, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, renewal, script, source};
use crate::backend::{Fault, HoldRef, Renewed};
use crate::values::{HolderId, Key, clock};

pub(crate) fn ids(holder: HolderId, permits: u32) -> Vec<u8> {
    (0..permits)
        .flat_map(|index| holder.permit(index))
        .collect()
}

/// Sends the request once.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let HoldRef {
        key,
        holder,
        permits,
        ..
    } = sending.request.hold_ref;
    let script = AcquirePermits {
        name: key.name(),
        permits: key.raw(),
        leases: &leases(key),
        ids: &ids(holder, permits),
        lease_ms: sending.request.ttl.millis(),
        not_after_us: sending.not_after,
        channel: &channel(key),
        in_all: sending.request.in_all.map(NonZeroU64::get),
    };
    let later = [ReleasePermits::source(), RenewPermits::source()];
    sending.call_before(&later, || None, &script).await
}

/// Returns the permits, on the connection of `releasing`.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let hold_ref = releasing.hold_ref;
    let script = ReleasePermits {
        permits: hold_ref.key.raw(),
        leases: &leases(hold_ref.key),
        ids: &ids(hold_ref.holder, hold_ref.permits),
        channel: &channel(hold_ref.key),
    };
    releasing.call(&script).await
}

/// Returns all leased permits to a semaphore at a key that holds no hash. Returns `true` if there were any.
pub(crate) async fn force_release(
    router: &Router,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Fault> {
    let channel = channel_of_permits(key);
    let script = ForcePermits {
        permits: key.raw(),
        leases: &leases(key),
        channel: &channel,
    };
    let deadline = clock::now() + timeout;
    let (mut released, mut most) = (0, i64::MAX);
    loop {
        let reply = match router.call(key, &script, deadline.remaining()).await {
            // Somebody has taken a lock of this name, of whose semaphore the server had lost the number.
            Err(Fault::Foreign { .. }) if released > 0 => return Ok(true),
            reply => reply?,
        };
        router.publish_all(reply.unpublished);
        let (permits, left) = reply.done;
        released += permits;
        // Permits that are leased meanwhile are left alone, so that the loop ends however fast others lease.
        most = most.min(released + left);
        if left == 0 || released >= most {
            return Ok(released > 0);
        }
    }
}

script! {
    "acquire_permits", ["digits", "range", "failed", "refusal", "fence", "admitted", "counter", "by_request", "publish"]
    struct AcquirePermits<'a> {
        local {
            /// The semaphore's name as the user knows it.
            name: &'a str
        }
        keys { permits: &'a str, leases: &'a str }
        args {
            /// 16 bytes for each permit.
            ids: &'a [u8],
            lease_ms: u64,
            not_after_us: u64,
            channel: &'a str,
            /// The number of permits to set if the semaphore is not set.
            in_all: Option<u64>
        }
    }
    |this, mut items| -> AcquireReply {
        match items.text()?.as_str() {
            "SHORT" => too_few(items, this.name),
            word => acquire_reply(word, items, false, false),
        }
    }
}

script! {
    "release_permits", "allow-oom",
    ["digits", "range", "time", "failed", "refusal", "counter", "by_request", "publish", "publish_or_append"]
    struct ReleasePermits<'a> {
        keys { permits: &'a str, leases: &'a str }
        args { ids: &'a [u8], channel: &'a str }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}

renewal! {
    "renew_permits", ["digits", "range", "time", "each"]
    struct RenewPermits<'a> {
        keys { leases: String }
        arg { ids: Vec<u8> }
    }
}

script! {
    "force_permits", "allow-oom", ["digits", "failed", "refusal", "counter", "by_request", "publish", "publish_or_append"]
    struct ForcePermits<'a> {
        keys { permits: &'a str, leases: &'a str }
        args { channel: &'a str }
    }
    // How many permits were returned, and how many are still leased. If there are any, the script has to run again.
    |_, mut items| -> Announced<(i64, i64)> {
        items.word("OK")?;
        let permits = items.integer().filter(|permits| *permits >= 0)?;
        let left = items.integer().filter(|left| *left >= 0)?;
        Announced::read((permits, left), items)
    }
}
