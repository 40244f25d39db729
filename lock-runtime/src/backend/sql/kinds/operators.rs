//! The requests of operators: who holds a lock, and its forced release.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::sql::{Arg, SqlShared, topic};
use crate::backend::{AskedKind, Fault, Snapshot};
use crate::values::{Checkup, Key, LockMode, NodeHealth, clock};

use super::seen::{READ_WRITE, Seen};

pub(in crate::backend::sql) async fn inspect(
    inner: &Arc<SqlShared>,
    key: &Key,
    timeout: Duration,
) -> Result<Option<Snapshot>, Fault> {
    let seen = inner.look(key, clock::now() + timeout).await?;
    let seen = refuse_ids(seen, key)?;
    Ok(seen.and_then(snapshot))
}

fn snapshot(seen: Seen) -> Option<Snapshot> {
    let plain = Snapshot {
        queued: seen.queued,
        first_waiters: seen.first_waiters,
        ..Snapshot::of(LockMode::Exclusive)
    };
    if let Some(permits) = seen.permits {
        let leased = u64::try_from(seen.units).unwrap_or(0);
        return Some(Snapshot {
            left: seen.first_left,
            ..Snapshot::of_permits(leased, Some(permits - seen.units))
        });
    }
    if seen.holder.is_some() {
        return Some(Snapshot {
            mode: match (&*seen.kind, seen.queued) {
                (READ_WRITE, _) => LockMode::Write,
                (_, 0) => LockMode::Exclusive,
                _ => LockMode::Fair,
            },
            holder: seen.holder,
            left: Some(seen.left),
            ..plain
        });
    }
    if seen.locked {
        // It is locked by a transaction, which has neither an id nor a lease.
        return Some(plain);
    }
    (seen.shares > 0).then_some(Snapshot {
        mode: LockMode::Read,
        holder: seen.sharer,
        left: seen.last_left,
        readers: seen.shares,
        ..plain
    })
}

pub(in crate::backend::sql) async fn force_release(
    inner: &Arc<SqlShared>,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Fault> {
    let args = vec![Arg::text(key.raw()), Arg::Text(topic(key))];
    let deadline = clock::now() + timeout;
    let asked = inner.run(&inner.statements.force_release, args, deadline);
    if asked.await?.row().is_some() {
        return Ok(true);
    }
    refuse_ids(inner.look(key, deadline).await?, key)?;
    Ok(false)
}

/// A source of ids looks held in its row, and nobody holds it.
fn refuse_ids(seen: Option<Seen>, key: &Key) -> Result<Option<Seen>, Fault> {
    match seen {
        Some(seen) if seen.is_ids() => Err(seen.is_not(key, AskedKind::Any)),
        seen => Ok(seen),
    }
}

/// Asks the server for a sign of life.
pub(in crate::backend::sql) async fn health(inner: &Arc<SqlShared>, timeout: Duration) -> Checkup {
    let deadline = clock::now() + timeout;
    let asked = inner.run(&inner.statements.alive, Vec::new(), deadline);
    let answer = asked.await;
    let since = inner.standing.note(answer.is_ok()).wall();
    let answer = answer.map(|answer| answer.sent_at.elapsed());
    let node = NodeHealth::new(
        &*inner.shown,
        since,
        answer.map_err(|fault| fault.to_string()),
    );
    Checkup {
        nodes: vec![node],
        majority: false,
    }
}
