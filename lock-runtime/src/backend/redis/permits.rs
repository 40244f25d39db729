//! Leased permits: Redisson's `RPermitExpirableSemaphore`, and what inspects and forces counters.

use std::time::Duration;

use super::counter_scripts::{Keys, ReadCounter};
use super::link::Live;
use super::permit_scripts::{AcquirePermits, ForcePermits, ReleasePermits, RenewPermits};
use super::renewals::ttl;
use super::scripts::{AcquireReply, ReleaseReply};
use super::{GaveBack, Inner, channel};
use crate::backend::{Claim, Fault, Renewal, Renewed, Seen, Stake};
use crate::clock::{self, Moment};
use crate::holder::HolderId;
use crate::key::Key;

/// Permits in one renewal script: about 2 µs of the server's time each.
const IN_ONE_SCRIPT: usize = 512;

/// The key of a semaphore's leases.
pub(super) fn leases(key: &Key) -> String {
    key.suffixed("timeout")
}

pub(super) fn ids(holder: HolderId, permits: u32) -> Vec<u8> {
    (0..permits)
        .flat_map(|index| holder.permit(index))
        .collect()
}

/// Asks once, on that connection.
pub(super) async fn acquire(
    live: &Live,
    claim: &Claim<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let Stake {
        key,
        holder,
        permits,
    } = claim.stake;
    let script = AcquirePermits {
        keys: Keys {
            count: key.raw(),
            leases: &leases(key),
        },
        name: key.name(),
        ids: &ids(holder, permits),
        lease: claim.term.millis(),
        not_after,
        channel: &channel(key),
    };
    live.call(&script, now, deadline).await
}

/// Gives the permits back, on that connection.
pub(super) async fn release(
    inner: &Inner,
    live: &Live,
    stake: Stake<'_>,
    now: Moment,
    deadline: Moment,
) -> Result<GaveBack, Fault> {
    let channel = channel(stake.key);
    let script = ReleasePermits {
        keys: Keys {
            count: stake.key.raw(),
            leases: &leases(stake.key),
        },
        ids: &ids(stake.holder, stake.permits),
        channel: &channel,
    };
    let reply = live.call(&script, now, deadline).await?;
    if let Some(payload) = reply.unpublished {
        inner.publish(channel, payload);
    } else if live.asking {
        // Those who listen do so at the node that still has the slot.
        inner.publish(channel, stake.permits.to_string());
    }
    Ok(match reply.released {
        ReleaseReply::Done | ReleaseReply::Unpublished => GaveBack::Done,
        ReleaseReply::NotHeld { time } => GaveBack::NotHeld { time },
    })
}

/// Renews sets of permits, so many to a script that none blocks the server. What one script is not answered says
/// nothing about the others.
pub(super) async fn renew(
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
pub(super) fn entry(item: &Renewal, permits: u32, ttl: i64) -> (String, Vec<u8>, i64) {
    (leases(&item.key), ids(item.holder, permits), ttl)
}

/// Cuts a batch so that each part has one set, or sets of so many permits together.
pub(super) fn parts<'a, 'b>(batch: &'a [&'b Renewal]) -> Vec<&'a [&'b Renewal]> {
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
pub(super) async fn inspect(
    inner: &Inner,
    key: &Key,
    timeout: Duration,
) -> Result<Option<Seen>, Fault> {
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
pub(super) async fn force_release(
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
    use crate::holder::HolderIds;
    use crate::kind::Kind;
    use crate::name::LockName;

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
                    term: None,
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
