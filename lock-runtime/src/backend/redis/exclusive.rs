//! One holder at a time: mutex and fenced lock, Redisson's `RLock` and `RFencedLock`; and what a writer of a read/write
//! lock has in common with them.

use super::link::Live;
use super::renewals::ttl;
use super::scripts::{
    Acquire, AcquireReply, HandOver, HandOverReply, NextToken, NextTokenReply, RELEASED, Release,
    Renew,
};
use super::{GaveBack, Inner, channel};
use crate::backend::{Claim, Fault, Granted, HandedOver, Renewal, Renewed, Stake};
use crate::clock::{self, Moment};
use crate::error::StoreError;
use crate::fence::FencingToken;
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;

/// The field of a hold in the lock's hash.
pub(super) fn field(key: &Key, holder: HolderId) -> String {
    match key.kind() {
        Kind::Write => holder.text() + ":write",
        _ => holder.text(),
    }
}

/// Asks once, on that connection.
pub(super) async fn acquire(
    live: &Live,
    claim: &Claim<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let Stake { key, holder, .. } = claim.stake;
    let fence = claim.fenced.then(|| key.fence());
    let script = Acquire {
        lock: key.raw(),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease: claim.term.millis(),
        not_after,
        counted: key.kind() == Kind::Fenced,
    };
    live.call(&script, now, deadline).await
}

/// A token for a lock that the claim's holder has just been given without one. Not later than `deadline`, which comes
/// before the end of the lease: the token of a later holder is larger.
///
/// Without an answer, and without a token, the caller gives the lock back: both are told as unknown.
pub(super) async fn token(
    inner: &Inner,
    claim: &Claim<'_>,
    deadline: Moment,
) -> Result<Option<FencingToken>, Fault> {
    let key = claim.stake.key;
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
        if let Some(detour) = inner.detour(&answer) {
            let admitted = inner.admit_elsewhere(detour, at, key, deadline).await;
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
pub(super) async fn release(
    inner: &Inner,
    live: &Live,
    stake: Stake<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let (holder, channel) = (stake.holder.text(), channel(stake.key));
    let script = Release {
        lock: stake.key.raw(),
        holder: &holder,
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?.heard_of(live);
    Ok(reply.gave_back(|| inner.publish(channel, RELEASED.to_owned())))
}

pub(super) async fn hand_over(
    inner: &Inner,
    from: HolderId,
    to: Claim<'_>,
) -> Result<HandedOver, Fault> {
    let deadline = to.asked_at + to.timeout;
    let (mut live, mut sent_at) = inner.route(to.stake.key, to.asked_at, deadline).await?;
    let Stake { key, holder, .. } = to.stake;
    let fence = to.fenced.then(|| key.fence());
    let channel = channel(key);
    let script = HandOver {
        lock: key.raw(),
        fence: fence.as_deref(),
        from: &field(key, from),
        to: &field(key, holder),
        lease: to.term.millis(),
        channel: &channel,
        counted: key.kind() == Kind::Fenced,
    };
    let reply = loop {
        let answer = live.call(&script, sent_at, deadline).await;
        let Some(detour) = inner.detour(&answer) else {
            break answer?;
        };
        // Lock and fence are at two nodes. A release and another acquire find them both at once.
        if detour.splits() {
            return Err(detour.fault);
        }
        (live, sent_at) = inner.follow(detour, &live, key, deadline).await?;
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

pub(super) async fn renew(
    live: &Live,
    batch: &[&Renewal],
    now: Moment,
    deadline: Moment,
) -> Result<Vec<Renewed>, Fault> {
    let items: Vec<_> = batch.iter().map(|item| entry(item, ttl(item))).collect();
    live.call(&Renew { items: &items }, now, deadline).await
}

/// One item of the script that renews.
pub(super) fn entry(item: &Renewal, ttl: i64) -> (&str, String, i64) {
    (item.key.raw(), field(&item.key, item.holder), ttl)
}
