//! A lock that serves its waiters in order: Redisson's `RFairLock`. Its hold is the same as that of a mutex.

use super::request::{Releasing, Sending};
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::scripting::exclusive::Renew;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, Announced, ReleaseReply, acquire_reply, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{Fault, HoldRef};
use crate::values::{HolderId, Key};

/// Returns the channel whose messages wake one waiter when its turn comes.
pub(crate) fn own_channel(key: &Key, holder: HolderId) -> String {
    format!("{}:{}", channel(key), holder.text())
}

/// Returns the keys of the queue: the list of the waiters, and the times at which they count as dead.
pub(crate) fn queue_keys(key: &Key) -> [String; 2] {
    ["redisson_lock_queue", "redisson_lock_timeout"].map(|prefix| key.prefixed(prefix))
}

/// Sends the request once.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let HoldRef { key, holder, .. } = sending.request.hold_ref;
    let [queue, timeouts] = &queue_keys(key);
    let fence = sending.fence();
    let script = FairAcquire {
        lock: key.raw(),
        queue,
        timeouts,
        fence: fence.as_deref(),
        holder: &holder.text(),
        place: &sending.request.place().text(),
        lease_ms: sending.request.ttl.millis(),
        not_after_us: sending.not_after,
        waits: sending.request.waits.is_some(),
        channel: &channel(key),
    };
    let later = [FairRelease::source(), Renew::source()];
    sending.call_before(&later, || None, &script).await
}

/// Ends the hold or the place in the queue, on the connection of `releasing`.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let hold_ref = releasing.hold_ref;
    let [queue, timeouts] = &queue_keys(hold_ref.key);
    let script = FairRelease {
        lock: hold_ref.key.raw(),
        queue,
        timeouts,
        holder: &hold_ref.holder.text(),
        channel: &channel(hold_ref.key),
    };
    releasing.call(&script).await
}

script! {
    "fair_acquire",
    ["digits", "range", "refusal", "fence", "admitted", "lease", "holder", "listeners", "keeper", "queue", "publish"]
    struct FairAcquire<'a> {
        keys { lock: &'a str, queue: &'a str, timeouts: &'a str, fence: Option<&'a str> }
        args {
            holder: &'a str,
            /// The id under which the caller is in the queue.
            place: &'a str,
            lease_ms: u64,
            not_after_us: u64,
            /// Whether a caller that cannot acquire the lock gets a place in the queue.
            waits: bool,
            channel: &'a str
        }
    }
    |this, mut items| -> AcquireReply {
        let word = items.text()?;
        if word == "QUEUED" {
            let (left, place) = (items.expiry()?, items.integer()?);
            let reply = AcquireReply::Busy {
                left,
                kept: place == 2,
                first: Some((0..=2).contains(&place).then_some(place > 0)?),
                time: items.digits()?,
            };
            return items.end(Ok(reply));
        }
        acquire_reply(&word, items, this.fence.is_some(), false)
    }
}

script! {
    "fair_release", "allow-oom", ["digits", "time", "failed", "queue", "publish"]
    struct FairRelease<'a> {
        keys { lock: &'a str, queue: &'a str, timeouts: &'a str }
        args { holder: &'a str, channel: &'a str }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}
