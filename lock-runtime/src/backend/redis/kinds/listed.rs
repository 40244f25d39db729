//! The waiting list of a mutex. The processes of this library that wait are on it, and a release reserves the lock for
//! the first of them. Only that process gets a message, so no other process asks for the lock.
//!
//! Only this library uses the list. Other clients neither see it nor need it: the lock is left to them from time to
//! time.

use std::sync::Arc;

use super::request::{Releasing, Sending};
use crate::backend::redis::connection::Live;
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::pubsub::topics::Topics;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, Announced, ReleaseReply, acquire_reply, release_reply,
};
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{Both, Fault, Granted, HoldRef, Listen, Released, WaitingList};
use crate::values::key::LIST_PREFIX;
use crate::values::{Alias, HolderId, Key, Kind, Moment};

/// Returns `true` if the release of the lock looks at the list.
pub(crate) fn is_wanted(router: &Router, key: &Key, holder: HolderId) -> bool {
    router.keeps_list(key) && (router.wanted.by(key) > 0 || hears(&router.topics, key, holder))
}

/// Returns the channel for the message that the lock is reserved for this process.
fn own_channel(key: &Key, holder: HolderId) -> String {
    [&channel(key), ":", &holder.short_client()].concat()
}

/// Returns a channel without messages. Its listeners are the processes that wait on the list, so that they can be
/// counted.
fn channel_of_ours(key: &Key) -> String {
    channel(key) + ":ours"
}

fn waiting_key(key: &Key) -> String {
    key.prefixed(LIST_PREFIX)
}

impl WaitingList for Router {
    fn listen(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        let topics = &self.topics;
        let releases = topics.listen(channel(key));
        let own = topics.listen(own_channel(key, holder));
        let ours = topics.listen(channel_of_ours(key));
        let both = Both(Box::new(own), Box::new(releases));
        Box::new(Both(Box::new(both), Box::new(ours)))
    }

    fn hears(&self, key: &Key, holder: HolderId) -> bool {
        hears(&self.topics, key, holder)
    }

    fn take_reserved(&self, key: &Key, holder: HolderId, now: Moment) -> Option<Granted> {
        let (live, alias) = (self.nodes.live(), holder.alias(key.kind()));
        self.topics.reservations.take(alias, live.as_ref(), now)
    }
}

/// Returns `true` if this process receives the message that the lock is reserved for it.
fn hears(topics: &Topics, key: &Key, holder: HolderId) -> bool {
    // Nearly always there are no topics, and this check costs less than making the channel's name.
    !topics.is_empty() && topics.is_open(&own_channel(key, holder))
}

/// Expects no message any more: the holder leaves, or its request is undone.
pub(crate) fn forget(topics: &Topics, hold_ref: HoldRef<'_>) {
    if hold_ref.listed {
        let alias = hold_ref.holder.alias(hold_ref.key.kind());
        topics.reservations.forget(alias);
    }
}

/// Begins to expect a message after the first request of a holder, before that is sent. Returns the holder's name in the
/// message; `None` if no message to this process is believed.
fn expect(
    router: &Router,
    key: &Key,
    holder: HolderId,
    live: &Live,
    sent_at: Moment,
) -> Option<Alias> {
    let may_believe =
        router.has_two_workers && key.kind() == Kind::Mutex && hears(&router.topics, key, holder);
    may_believe.then(|| {
        let holder = holder.alias(key.kind());
        router.topics.reservations.expect(holder, live, sent_at);
        holder
    })
}

/// Sends the request once. If the holder cannot acquire the lock, it is on the list afterwards. Expects the message of a
/// reservation for the first request of a holder, and none after any other request.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let (router, HoldRef { key, holder, .. }) = (sending.router, sending.request.hold_ref);
    let (live, sent_at) = (&sending.at.live, sending.at.sent_at);
    let looks = sending.request.looks_for_reservation;
    let expected = looks.then(|| expect(router, key, holder, live, sent_at));
    let Some(expected) = expected.flatten() else {
        forget(&router.topics, sending.request.hold_ref);
        return send(sending).await;
    };
    let reply = send(sending).await;
    let listed_at = match &reply {
        Ok(AcquireReply::Busy { time, .. }) => Some(*time),
        _ => None,
    };
    router.topics.reservations.answered(expected, listed_at);
    reply
}

async fn send(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
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
        spare: sending.spare(),
    };
    sending.call(&script).await
}

/// Releases the lock or leaves the list, on the connection of `releasing`. Also puts the next holder on the list, if
/// another process comes first.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let HoldRef { key, holder, .. } = releasing.hold_ref;
    let (live, sent_at, unused) = (releasing.live, releasing.sent_at, releasing.unused());
    // A counted fence goes up by one for each hold, so no token is drawn for a holder that may ask for another one.
    let run_id = live.run_id();
    let run_id = run_id.filter(|_| key.kind() == Kind::Mutex);
    // Its request is this release, so an id from before the connection would be refused.
    let next = releasing.with.next.copied();
    let next = next.filter(|next| live.may_carry(*next).is_ok());
    let router = releasing.router;
    let expected = next.and_then(|next| expect(router, key, next, live, sent_at));
    let script = ListedRelease {
        lock: key.raw(),
        waiting: &waiting_key(key),
        fence: &key.fence(),
        holder: &holder.text(),
        channel: &channel(key),
        trip_us: live.trip_us(),
        run_id: run_id.unwrap_or_default(),
        next: &next.map(HolderId::text).unwrap_or_default(),
        next_not_after_us: live.clock().not_after(sent_at, releasing.deadline),
        last: unused.map(|tokens| tokens.last.get()),
        used: unused.map(|tokens| tokens.given.get()),
    };
    let reply = releasing.call(&script).await;
    let listed_at = match &reply {
        Ok(Announced { done, .. }) if done.released == Released::DoneAndListed => Some(done.time),
        _ => None,
    };
    if let Some(time) = listed_at {
        live.clock().saw(time, sent_at);
    }
    if let Some(expected) = expected {
        router.topics.reservations.answered(expected, listed_at);
    }
    reply
}

script! {
    "listed_acquire", shortcut after ["common_case"],
    [
        "digits", "range", "refusal", "fence", "admitted", "lease", "holder", "listeners", "keeper", "publish", "failed",
        "waiting", "reserve_tokens"
    ]
    struct ListedAcquire<'a> {
        keys { lock: &'a str, waiting: &'a str, fence: Option<&'a str> }
        args {
            holder: &'a str,
            lease_ms: u64,
            not_after_us: u64,
            counted: bool,
            channel: &'a str,
            /// The number of tokens to reserve after the holder's. If it is set, the channel's subscribers are counted.
            spare: Option<u64>
        }
    }
    |this, mut items| -> AcquireReply {
        let word = items.text()?;
        acquire_reply(&word, items, this.fence.is_some(), this.spare.is_some())
    }
}

script! {
    "listed_release", "allow-oom", shortcut after ["publish", "publish_release"],
    ["digits", "time", "failed", "refusal", "fence", "listeners", "waiting", "return_tokens"]
    struct ListedRelease<'a> {
        keys { lock: &'a str, waiting: &'a str, fence: &'a str }
        args {
            holder: &'a str,
            channel: &'a str,
            /// A recent round trip to the server.
            trip_us: u64,
            /// The id of the server's run. If it is empty, the message of a reservation is a hint only.
            run_id: &'a str,
            /// The holder to put on the list. Empty if there is none.
            next: &'a str,
            next_not_after_us: u64,
            /// The last reserved token, and the last token that a hold has used.
            last: Option<u64>,
            used: Option<u64>
        }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}
