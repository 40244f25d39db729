//! One holder at a time: mutex and fenced lock, Redisson's `RLock` and `RFencedLock`; and what a writer of a read/write
//! lock has in common with them.

use std::time::Duration;

use super::link::Live;
use super::scripts::{Acquire, AcquireReply, HandOver, HandOverReply, RELEASED, Release, Renew};
use super::{GaveBack, Inner, channel};
use crate::backend::{Claim, Fault, Granted, HandedOver, Renewal, Renewed, Stake};
use crate::clock::Moment;
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;

/// The field of a hold in the lock's hash.
fn field(key: &Key, holder: HolderId) -> String {
    match key.kind() {
        Kind::Write => holder.text() + ":write",
        _ => holder.text(),
    }
}

/// Asks once, on that connection.
pub(super) async fn acquire(
    inner: &Inner,
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
    inner.link.call(live, &script, now, deadline).await
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
    let reply = inner.link.call(live, &script, now, deadline).await?;
    Ok(reply.gave_back(|| inner.publish(channel, RELEASED.to_owned())))
}

pub(super) async fn hand_over(
    inner: &Inner,
    from: HolderId,
    to: Claim<'_>,
) -> Result<HandedOver, Fault> {
    let deadline = to.asked_at + to.timeout;
    let (live, sent_at) = inner.link.get(to.asked_at, deadline).await?;
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
    match inner.link.call(&live, &script, sent_at, deadline).await? {
        HandOverReply::Done {
            token,
            time,
            subscribers,
        } => {
            inner.link.clock().saw(time, sent_at);
            // This process is among those who are subscribed.
            let own = inner.topics.is_open(&channel);
            let strangers = subscribers.map(|count| count.saturating_sub(u64::from(own)));
            Ok(HandedOver::Done {
                granted: Granted { token, sent_at },
                strangers,
            })
        }
        HandOverReply::NotHeld => Ok(HandedOver::NotHeld),
    }
}

pub(super) async fn renew(
    inner: &Inner,
    batch: &[&Renewal],
    timeout: Duration,
) -> Result<Vec<Renewed>, Fault> {
    let items: Vec<_> = batch
        .iter()
        .map(|item| {
            let ttl = item.term.map_or(0, |term| term.millis());
            (item.key.raw(), field(&item.key, item.holder), ttl)
        })
        .collect();
    inner.call(&Renew { items: &items }, timeout).await
}
