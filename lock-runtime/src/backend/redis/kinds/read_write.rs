//! Many readers or one writer: Redisson's `RReadWriteLock`.

use std::time::Duration;

use super::renewals::ttl;
use crate::backend::redis::connection::link::Live;
use crate::backend::redis::kinds::exclusive_scripts::AcquireReply;
use crate::backend::redis::kinds::read_write_scripts::{
    Downgrade, ReadAcquire, ReadRenew, ReadWriteRelease, WriteAcquire,
};
use crate::backend::redis::{GaveBack, Inner, channel};
use crate::backend::{
    AcquireRequest, Fault, HoldRef, LONGEST_PREFERENCE, Released, Renewal, Renewed,
};
use crate::values::clock::{self, Moment};
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::ttl::Ttl;

/// What a reader publishes when it leaves as the last one; a Redisson client wakes one waiter.
const READER_LEFT: &str = "0";
/// What a writer publishes before that; a Redisson client wakes all who sleep.
const WRITER_LEFT: &str = "1";

/// The key that carries a reader's lease: of its first hold, and ours have one each.
pub(crate) fn timeout_key(key: &Key, holder: HolderId) -> String {
    key.suffixed(&(holder.text() + ":rwlock_timeout:1"))
}

/// Asks once, on that connection.
pub(crate) async fn acquire(
    live: &Live,
    request: &AcquireRequest<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let key = request.hold_ref.key;
    let holder = request.hold_ref.holder.text();
    let writer_waits = key.writer_waits();
    if key.kind() == Kind::Read {
        let script = ReadAcquire {
            lock: key.raw(),
            timeout: &timeout_key(key, request.hold_ref.holder),
            writer_waits: &writer_waits,
            holder: &holder,
            lease: request.ttl.millis(),
            not_after,
        };
        return live.call(&script, now, deadline).await;
    }
    let waits = request.waits.unwrap_or_default().min(LONGEST_PREFERENCE);
    let fence = request.fenced.then(|| key.fence());
    let script = WriteAcquire {
        lock: key.raw(),
        writer_waits: &writer_waits,
        fence: fence.as_deref(),
        holder: &holder,
        lease: request.ttl.millis(),
        not_after,
        waits: u64::try_from(waits.as_millis()).unwrap_or(u64::MAX),
    };
    live.call(&script, now, deadline).await
}

/// Gives back a read or a write, on that connection.
pub(crate) async fn release(
    inner: &Inner,
    live: &Live,
    hold_ref: HoldRef<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let (holder, channel) = (hold_ref.holder.text(), channel(hold_ref.key));
    let script = ReadWriteRelease {
        lock: hold_ref.key.raw(),
        timeout: &timeout_key(hold_ref.key, hold_ref.holder),
        writer_waits: &hold_ref.key.writer_waits(),
        holder: &holder,
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?.heard_of(live);
    Ok(reply.gave_back(|| publish(inner, channel)))
}

pub(crate) async fn downgrade(
    inner: &Inner,
    hold_ref: HoldRef<'_>,
    ttl: Ttl,
    timeout: Duration,
) -> Result<Released, Fault> {
    let (holder, channel) = (hold_ref.holder.text(), channel(hold_ref.key));
    let script = Downgrade {
        lock: hold_ref.key.raw(),
        timeout: &timeout_key(hold_ref.key, hold_ref.holder),
        holder: &holder,
        lease: ttl.millis(),
        channel: &channel,
    };
    let before = inner.nodes.live();
    let deadline = clock::now() + timeout;
    let reply = inner.call(hold_ref.key, &script, timeout).await?;
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
pub(crate) async fn renew(
    live: &Live,
    batch: &[&Renewal],
    now: Moment,
    deadline: Moment,
) -> Result<Vec<Renewed>, Fault> {
    let items: Vec<_> = batch.iter().map(|item| entry(item, ttl(item))).collect();
    live.call(&ReadRenew { items: &items }, now, deadline).await
}

/// One item of the script that renews reads.
pub(crate) fn entry(item: &Renewal, ttl: i64) -> (&str, String, String, i64) {
    let timeout = timeout_key(&item.key, item.holder);
    (item.key.raw(), timeout, item.holder.text(), ttl)
}
