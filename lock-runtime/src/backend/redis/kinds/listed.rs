//! A mutex that many processes of ours want: those that wait are on a list, and the lock is reserved for the first of
//! them when it is given back. Only the first is told, so nobody else asks for it.
//!
//! The list is ours alone: other clients neither see it nor need to. They are let in between.

use std::sync::Arc;

use super::request::{Releasing, Sending};
use crate::backend::redis::pubsub::messages::{
    PASSED_ON, RELEASED_TO_CROWD, RELEASED_TO_FEW, channel,
};
use crate::backend::redis::pubsub::topics::Topics;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, ReleaseReply, acquire_reply, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{Both, Fault, HoldRef, Listen};
use crate::values::key::LIST_PREFIX;
use crate::values::{HolderId, Key, Kind};

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
    let releases = topics.listen_for_releases(channel(key));
    let own = topics.listen(own_channel(key, holder));
    let ours = topics.listen(channel_of_ours(key));
    let both = Both(Box::new(own), Box::new(releases));
    Box::new(Both(Box::new(both), Box::new(ours)))
}

/// Whether many wait, and this process hears when the lock is reserved for it.
pub(crate) fn serves(topics: &Topics, key: &Key, holder: HolderId) -> bool {
    // Nearly always: the names of channels cost more than this.
    !topics.is_empty()
        && topics.is_crowded(&channel(key))
        && topics.is_open(&own_channel(key, holder))
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
    let router = releasing.router;
    let releases = channel(key);
    // The holder's process is one of them. It listens only if others of it wait.
    let listens = router.topics.is_open(&releases);
    let script = ListedRelease {
        lock: key.raw(),
        waiting: &waiting_key(key),
        fence: unused.map(|_| key.fence()),
        holder: &holder.text(),
        channel: &releases,
        trip_us: releasing.live.trip_us(),
        crowd: router.crowd_from - usize::from(!listens),
        to_few: RELEASED_TO_FEW,
        to_crowd: RELEASED_TO_CROWD,
        passed_on: PASSED_ON,
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
    "listed_release", "allow-oom", shortcut after [],
    ["publish", "digits", "time", "failed", "listeners", "waiting", "unused"]
    struct ListedRelease<'a> {
        keys { lock: &'a str, waiting: &'a str, fence: Option<String> }
        args {
            holder: &'a str,
            channel: &'a str,
            trip_us: u64,
            /// So many listeners wait on the list. Fewer are all told.
            crowd: usize,
            to_few: &'a str,
            to_crowd: &'a str,
            passed_on: &'a str,
            /// The last of the tokens that were set aside, and the last one that anybody has.
            last: Option<u64>,
            used: Option<u64>
        }
    }
    |_, items| -> ReleaseReply { release_reply(items) }
}
