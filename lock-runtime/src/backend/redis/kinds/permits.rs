//! Leased permits: Redisson's `RPermitExpirableSemaphore`, and what inspects and forces counters.

use std::time::Duration;

use super::counter_scripts::{Keys, ReadCounter};
use super::permit_scripts::{AcquirePermits, ForcePermits, ReleasePermits, RenewPermits};
use super::renewals::ttl;
use crate::backend::redis::connection::link::Live;
use crate::backend::redis::kinds::exclusive_scripts::{AcquireReply, ReleaseReply};
use crate::backend::redis::{GaveBack, Inner, channel};
use crate::backend::{AcquireRequest, Fault, HoldRef, Renewal, Renewed, Snapshot};
use crate::values::clock::{self, Moment};
use crate::values::holder::HolderId;
use crate::values::key::Key;

/// Permits in one renewal script: about 2 µs of the server's time each.
const IN_ONE_SCRIPT: usize = 512;

/// The key of a semaphore's leases.
pub(crate) fn leases(key: &Key) -> String {
    key.suffixed("timeout")
}

pub(crate) fn ids(holder: HolderId, permits: u32) -> Vec<u8> {
    (0..permits)
        .flat_map(|index| holder.permit(index))
        .collect()
}

/// Asks once, on that connection.
pub(crate) async fn acquire(
    live: &Live,
    request: &AcquireRequest<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let HoldRef {
        key,
        holder,
        permits,
    } = request.hold_ref;
    let script = AcquirePermits {
        keys: Keys {
            count: key.raw(),
            leases: &leases(key),
        },
        name: key.name(),
        ids: &ids(holder, permits),
        lease: request.ttl.millis(),
        not_after,
        channel: &channel(key),
    };
    live.call(&script, now, deadline).await
}

/// Gives the permits back, on that connection.
pub(crate) async fn release(
    inner: &Inner,
    live: &Live,
    hold_ref: HoldRef<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let channel = channel(hold_ref.key);
    let script = ReleasePermits {
        keys: Keys {
            count: hold_ref.key.raw(),
            leases: &leases(hold_ref.key),
        },
        ids: &ids(hold_ref.holder, hold_ref.permits),
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?;
    if let Some(payload) = reply.unpublished {
        inner.publish(channel, payload);
    } else if live.asking {
        // Those who listen do so at the node that still has the slot.
        inner.publish(channel, hold_ref.permits.to_string());
    }
    Ok(match reply.released {
        ReleaseReply::Done | ReleaseReply::Unpublished => GaveBack::Done,
        ReleaseReply::NotHeld { time } => GaveBack::NotHeld { time },
    })
}

/// Renews sets of permits, so many to a script that none blocks the server. What one script is not answered says
/// nothing about the others.
pub(crate) async fn renew(
    live: &Live,
    batch: &[&Renewal],
    mut now: Moment,
    deadline: Moment,
) -> Result<Vec<Renewed>, Fault> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut failed = None;
    for part in parts(batch) {
        let items = part.iter();
        let items: Vec<_> = items
            .map(|item| entry(item, item.permits, ttl(item)))
            .collect();
        let script = RenewPermits { items: &items };
        let answer = live.call(&script, now, deadline).await;
        now = clock::now();
        match answer {
            Ok(part) => answers.extend(part),
            Err(fault) => {
                failed = Some(fault);
                answers.extend(std::iter::repeat_n(Renewed::Unknown, part.len()));
            }
        }
    }
    match failed {
        Some(fault) if answers.iter().all(|answer| *answer == Renewed::Unknown) => Err(fault),
        _ => Ok(answers),
    }
}

/// One item of the script that renews permits: the first so many of a set.
pub(crate) fn entry(item: &Renewal, permits: u32, ttl: i64) -> (String, Vec<u8>, i64) {
    (leases(&item.key), ids(item.holder, permits), ttl)
}

/// Cuts a batch so that each part has one set, or sets of so many permits together.
pub(crate) fn parts<'a, 'b>(batch: &'a [&'b Renewal]) -> Vec<&'a [&'b Renewal]> {
    let mut parts = Vec::new();
    let (mut from, mut permits) = (0, 0);
    for (at, item) in batch.iter().enumerate() {
        let more = usize::try_from(item.permits).unwrap_or(usize::MAX);
        if at > from && permits + more > IN_ONE_SCRIPT {
            parts.push(&batch[from..at]);
            (from, permits) = (at, 0);
        }
        permits += more;
    }
    if from < batch.len() {
        parts.push(&batch[from..]);
    }
    parts
}

/// Looks at a key that holds no hash. `None` if it is no counter either.
pub(crate) async fn inspect(
    inner: &Inner,
    key: &Key,
    timeout: Duration,
) -> Result<Option<Snapshot>, Fault> {
    let script = ReadCounter {
        keys: Keys {
            count: key.raw(),
            leases: &leases(key),
        },
    };
    let reading = inner.call(key, &script, timeout).await?;
    Ok(reading.map(|reading| reading.seen()))
}

/// Gives all leased permits back at a key that holds no hash. True if there were any.
pub(crate) async fn force_release(
    inner: &Inner,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Fault> {
    let channel = super::counters::channel_of_permits(key);
    let script = ForcePermits {
        keys: Keys {
            count: key.raw(),
            leases: &leases(key),
        },
        channel: &channel,
    };
    let deadline = clock::now() + timeout;
    let (mut released, mut most) = (0, i64::MAX);
    loop {
        let reply = inner.call(key, &script, deadline.remaining()).await?;
        for (channel, payload) in reply.unpublished {
            inner.publish(channel, payload);
        }
        released += reply.permits;
        // What has been leased meanwhile stays: there is an end, however fast others are.
        most = most.min(released + reply.left);
        if reply.left == 0 || released >= most {
            return Ok(released > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::values::holder::HolderIds;
    use crate::values::kind::Kind;
    use crate::values::name::LockName;

    #[test]
    fn a_renewal_is_cut_so_that_no_script_is_long() {
        let ids = HolderIds::new();
        let key = Key::new("", &LockName::from("k"), Kind::Permits).unwrap();
        let key = Arc::new(key);
        let sizes = |permits: &[u32]| -> Vec<usize> {
            let batch: Vec<_> = permits
                .iter()
                .map(|&permits| Renewal {
                    key: key.clone(),
                    holder: ids.fresh(),
                    permits,
                    ttl: None,
                })
                .collect();
            let batch: Vec<_> = batch.iter().collect();
            parts(&batch).iter().map(|part| part.len()).collect()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(
            sizes(&[1; 128]),
            [128],
            "a full batch of single permits is one script"
        );
        assert_eq!(sizes(&[256, 256, 1, 1_000, 1_000, 3]), [2, 1, 1, 1, 1]);
    }
}
