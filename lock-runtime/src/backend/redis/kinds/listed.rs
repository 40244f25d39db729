//! The waiting list of a mutex: the processes of ours that wait are on it, and a release reserves the lock for the first of
//! them. Only that process is told, so nobody else asks for the lock.
//!
//! The list is ours alone: other clients neither see it nor need to. They are let in between.

use std::sync::Arc;

use super::request::{Releasing, Sending};
use crate::backend::redis::pubsub::messages::{RELEASED, channel};
use crate::backend::redis::pubsub::topics::Topics;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, ReleaseReply, acquire_reply, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{Both, Fault, HoldRef, Listen};
use crate::values::key::LIST_PREFIX;
use crate::values::{HolderId, Key, Kind};

/// Whether the release of a lock looks at the list.
pub(crate) fn is_wanted(router: &Router, key: &Key, holder: HolderId) -> bool {
    router.keeps_list(key) && (router.wanted.is_noted(key) || hears(&router.topics, key, holder))
}

/// Returns the channel on which one process hears that the lock is reserved for it.
fn own_channel(key: &Key, holder: HolderId) -> String {
    [&channel(key), ":", &holder.short_client()].concat()
}

/// Returns the channel on which nothing is said. Those who listen to it are processes that wait on the list.
fn channel_of_ours(key: &Key) -> String {
    channel(key) + ":ours"
}

fn waiting_key(key: &Key) -> String {
    key.prefixed(LIST_PREFIX)
}

/// Listens for releases, and for the message that the lock is reserved for this process.
pub(crate) fn listen(topics: &Arc<Topics>, key: &Key, holder: HolderId) -> Box<dyn Listen> {
    let releases = topics.listen(channel(key));
    let own = topics.listen(own_channel(key, holder));
    let ours = topics.listen(channel_of_ours(key));
    let both = Both(Box::new(own), Box::new(releases));
    Box::new(Both(Box::new(both), Box::new(ours)))
}

/// Whether this process hears when the lock is reserved for it.
pub(crate) fn hears(topics: &Topics, key: &Key, holder: HolderId) -> bool {
    // Nearly always there are none: the name of the channel costs more than this.
    !topics.is_empty() && topics.is_open(&own_channel(key, holder))
}

/// Asks once. A holder that cannot have the lock is on the list then.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let HoldRef { key, holder, .. } = sending.request.hold_ref;
    let fence = sending.fence();
    let script = ListedAcquire {
        lock: key.raw(),
        waiting: &waiting_key(key),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease_ms: sending.request.ttl.millis(),
        not_after_us: sending.not_after,
        counted: key.kind() == Kind::Fenced,
        channel: &channel(key),
        trip_us: sending.at.live.trip_us(),
        spare: sending.spare(),
    };
    sending.call(&script).await
}

/// Gives back the lock or the place on the list, on that connection.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<ReleaseReply, Fault> {
    let HoldRef { key, holder, .. } = releasing.hold_ref;
    let unused = releasing.unused();
    let script = ListedRelease {
        lock: key.raw(),
        waiting: &waiting_key(key),
        fence: unused.map(|_| key.fence()),
        holder: &holder.text(),
        channel: &channel(key),
        trip_us: releasing.live.trip_us(),
        released: RELEASED,
        last: unused.map(|tokens| tokens.last.get()),
        used: unused.map(|tokens| tokens.used.get()),
    };
    releasing.call(&script).await
}

script! {
    "listed_acquire", shortcut after ["usually"],
    [
        "digits", "range", "refusal", "fence", "admitted", "lease", "holder", "listeners", "keeper", "publish", "failed",
        "waiting", "ahead"
    ]
    struct ListedAcquire<'a> {
        keys { lock: &'a str, waiting: &'a str, fence: Option<&'a str> }
        args {
            holder: &'a str,
            lease_ms: u64,
            not_after_us: u64,
            counted: bool,
            channel: &'a str,
            /// A round trip to the server.
            trip_us: u64,
            /// The number of tokens to set aside after that of the holder. The channel's subscribers are counted then.
            spare: Option<u64>
        }
    }
    |this, mut items| -> AcquireReply {
        let word = items.text()?;
        acquire_reply(&word, items, &[("lock", Some(this.lock)), ("fence", this.fence)], this.spare.is_some())
    }
}

script! {
    "listed_release", "allow-oom", shortcut after ["publish", "told"],
    ["digits", "time", "failed", "listeners", "waiting", "unused"]
    struct ListedRelease<'a> {
        keys { lock: &'a str, waiting: &'a str, fence: Option<String> }
        args {
            holder: &'a str,
            channel: &'a str,
            trip_us: u64,
            released: &'a str,
            /// The last of the tokens that were set aside, and the last one that anybody has.
            last: Option<u64>,
            used: Option<u64>
        }
    }
    |_, items| -> ReleaseReply { release_reply(items) }
}
