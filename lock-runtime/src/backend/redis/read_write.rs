//! Many readers or one writer: Redisson's `RReadWriteLock`.

use std::time::Duration;

use super::link::Live;
use super::renewals::ttl;
use super::rw_scripts::{Downgrade, ReadAcquire, ReadRenew, ReadWriteRelease, WriteAcquire};
use super::scripts::AcquireReply;
use super::{GaveBack, Inner, channel};
use crate::backend::{Claim, Fault, LONGEST_PREFERENCE, Released, Renewal, Renewed, Stake};
use crate::clock::{self, Moment};
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;
use crate::term::Term;

/// What a reader publishes when it leaves as the last one; a Redisson client wakes one waiter.
const READER_LEFT: &str = "0";
/// What a writer publishes before that; a Redisson client wakes all who sleep.
const WRITER_LEFT: &str = "1";

/// The key that carries a reader's lease: of its first hold, and ours have one each.
pub(super) fn timeout_key(key: &Key, holder: HolderId) -> String {
    key.suffixed(&(holder.text() + ":rwlock_timeout:1"))
}

/// Asks once, on that connection.
pub(super) async fn acquire(
    live: &Live,
    claim: &Claim<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let key = claim.stake.key;
    let holder = claim.stake.holder.text();
    let writer_waits = key.writer_waits();
    if key.kind() == Kind::Read {
        let script = ReadAcquire {
            lock: key.raw(),
            timeout: &timeout_key(key, claim.stake.holder),
            writer_waits: &writer_waits,
            holder: &holder,
            lease: claim.term.millis(),
            not_after,
        };
        return live.call(&script, now, deadline).await;
    }
    let waits = claim.waits.unwrap_or_default().min(LONGEST_PREFERENCE);
    let fence = claim.fenced.then(|| key.fence());
    let script = WriteAcquire {
        lock: key.raw(),
        writer_waits: &writer_waits,
        fence: fence.as_deref(),
        holder: &holder,
        lease: claim.term.millis(),
        not_after,
        waits: u64::try_from(waits.as_millis()).unwrap_or(u64::MAX),
    };
    live.call(&script, now, deadline).await
}

/// Gives back a read or a write, on that connection.
pub(super) async fn release(
    inner: &Inner,
    live: &Live,
    stake: Stake<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let (holder, channel) = (stake.holder.text(), channel(stake.key));
    let script = ReadWriteRelease {
        lock: stake.key.raw(),
        timeout: &timeout_key(stake.key, stake.holder),
        writer_waits: &stake.key.writer_waits(),
        holder: &holder,
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?.heard_of(live);
    Ok(reply.gave_back(|| publish(inner, channel)))
}

pub(super) async fn downgrade(
    inner: &Inner,
    stake: Stake<'_>,
    term: Term,
    timeout: Duration,
) -> Result<Released, Fault> {
    let (holder, channel) = (stake.holder.text(), channel(stake.key));
    let script = Downgrade {
        lock: stake.key.raw(),
        timeout: &timeout_key(stake.key, stake.holder),
        holder: &holder,
        lease: term.millis(),
        channel: &channel,
    };
    let before = inner.nodes.live();
    let deadline = clock::now() + timeout;
    let reply = inner.call(stake.key, &script, timeout).await?;
    match reply.gave_back(|| publish(inner, channel)) {
        GaveBack::Done => Ok(Released::Done),
        GaveBack::NotHeld { .. } => {
            inner.vouch(before, deadline).await?;
            Ok(Released::NotHeld)
        }
    }
}

/// What a script could not publish. One message too many does no harm.
fn publish(inner: &Inner, channel: String) {
    inner.publish(channel.clone(), WRITER_LEFT.to_owned());
    inner.publish(channel, READER_LEFT.to_owned());
}

/// Renews readers; writers are renewed with the exclusive holds.
pub(super) async fn renew(
    live: &Live,
    batch: &[&Renewal],
    now: Moment,
    deadline: Moment,
) -> Result<Vec<Renewed>, Fault> {
    let items: Vec<_> = batch.iter().map(|item| entry(item, ttl(item))).collect();
    live.call(&ReadRenew { items: &items }, now, deadline).await
}

/// One item of the script that renews reads.
pub(super) fn entry(item: &Renewal, ttl: i64) -> (&str, String, String, i64) {
    let timeout = timeout_key(&item.key, item.holder);
    (item.key.raw(), timeout, item.holder.text(), ttl)
}
