//! One holder at a time: mutex and fenced lock, Redisson's `RLock` and `RFencedLock`; and what a writer of a read/write
//! lock has in common with them.

use super::renewals::ttl;
use crate::backend::redis::connection::link::Live;
use crate::backend::redis::kinds::exclusive_scripts::{
    Acquire, AcquireReply, HandOver, HandOverReply, NextToken, NextTokenReply, RELEASED, Release,
    Renew,
};
use crate::backend::redis::{GaveBack, Inner, channel};
use crate::backend::{AcquireRequest, Fault, Granted, HandedOver, HoldRef, Renewal, Renewed};
use crate::values::clock::{self, Moment};
use crate::values::error::StoreError;
use crate::values::fence::FencingToken;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;

/// The field of a hold in the lock's hash.
pub(crate) fn field(key: &Key, holder: HolderId) -> String {
    match key.kind() {
        Kind::Write => holder.text() + ":write",
        _ => holder.text(),
    }
}

/// Asks once, on that connection.
pub(crate) async fn acquire(
    live: &Live,
    request: &AcquireRequest<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let fence = request.fenced.then(|| key.fence());
    let script = Acquire {
        lock: key.raw(),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease: request.ttl.millis(),
        not_after,
        counted: key.kind() == Kind::Fenced,
    };
    live.call(&script, now, deadline).await
}

/// A token for a lock that the request's holder has just been given without one. Not later than `deadline`, which comes
/// before the end of the lease: the token of a later holder is larger.
///
/// Without an answer, and without a token, the caller gives the lock back: both are told as unknown.
pub(crate) async fn token(
    inner: &Inner,
    request: &AcquireRequest<'_>,
    deadline: Moment,
) -> Result<Option<FencingToken>, Fault> {
    let key = request.hold_ref.key;
    let unfenced = |fault: Fault| match fault {
        Fault::NotDone(source) | Fault::Unknown(source) => {
            Fault::Unknown(StoreError::new(format!("no fencing token: {source}")))
        }
        fault => fault,
    };
    let fence = key.fence();
    let admitted = inner.admit(key, clock::now(), deadline).await;
    let mut at = admitted.map_err(unfenced)?;
    loop {
        let script = NextToken {
            fence: &fence,
            not_after: at.live.clock().not_after(at.sent_at, deadline),
            counted: key.kind() == Kind::Fenced,
        };
        let answer = at.live.call(&script, at.sent_at, deadline).await;
        if let Some(redirect) = inner.redirect(&answer) {
            let admitted = inner.admit_elsewhere(redirect, at, key, deadline).await;
            at = admitted.map_err(unfenced)?;
            continue;
        }
        match answer.map_err(unfenced)? {
            NextTokenReply::Taken { token, time } => {
                at.live.clock().saw(time, at.sent_at);
                return Ok(Some(token));
            }
            NextTokenReply::Stale { time } => at.live.clock().saw(time, at.sent_at),
        }
        if deadline.has_passed() {
            return Err(Fault::Unknown(StoreError::new("no fencing token in time")));
        }
        at.sent_at = clock::now();
    }
}

/// Gives the lock back, on that connection.
pub(crate) async fn release(
    inner: &Inner,
    live: &Live,
    hold_ref: HoldRef<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let (holder, channel) = (hold_ref.holder.text(), channel(hold_ref.key));
    let script = Release {
        lock: hold_ref.key.raw(),
        holder: &holder,
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?.heard_of(live);
    Ok(reply.gave_back(|| inner.publish(channel, RELEASED.to_owned())))
}

pub(crate) async fn hand_over(
    inner: &Inner,
    from: HolderId,
    to: AcquireRequest<'_>,
) -> Result<HandedOver, Fault> {
    let deadline = to.asked_at + to.timeout;
    let (mut live, mut sent_at) = inner.route(to.hold_ref.key, to.asked_at, deadline).await?;
    let HoldRef { key, holder, .. } = to.hold_ref;
    let fence = to.fenced.then(|| key.fence());
    let channel = channel(key);
    let script = HandOver {
        lock: key.raw(),
        fence: fence.as_deref(),
        from: &field(key, from),
        to: &field(key, holder),
        lease: to.ttl.millis(),
        channel: &channel,
        counted: key.kind() == Kind::Fenced,
    };
    let reply = loop {
        let answer = live.call(&script, sent_at, deadline).await;
        let Some(redirect) = inner.redirect(&answer) else {
            break answer?;
        };
        // Lock and fence are at two nodes. A release and another acquire find them both at once.
        if redirect.splits() {
            return Err(redirect.fault);
        }
        (live, sent_at) = inner.follow(redirect, &live, key, deadline).await?;
    };
    match reply {
        HandOverReply::Done {
            token,
            time,
            subscribers,
        } => {
            live.clock().saw(time, sent_at);
            // This process is among those who are subscribed.
            let own = inner.topics.is_open(&channel);
            let strangers = subscribers.map(|count| count.saturating_sub(u64::from(own)));
            Ok(HandedOver::Done {
                granted: Granted { token, sent_at },
                strangers,
            })
        }
        HandOverReply::NotHeld => {
            // Boxed: it is seldom, and every hand-over would carry it.
            Box::pin(inner.vouch(Some(live), deadline)).await?;
            Ok(HandedOver::NotHeld)
        }
    }
}

pub(crate) async fn renew(
    live: &Live,
    batch: &[&Renewal],
    now: Moment,
    deadline: Moment,
) -> Result<Vec<Renewed>, Fault> {
    let items: Vec<_> = batch.iter().map(|item| entry(item, ttl(item))).collect();
    live.call(&Renew { items: &items }, now, deadline).await
}

/// One item of the script that renews.
pub(crate) fn entry(item: &Renewal, ttl: i64) -> (&str, String, i64) {
    (item.key.raw(), field(&item.key, item.holder), ttl)
}
