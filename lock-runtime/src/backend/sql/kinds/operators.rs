//! What operators ask: who holds a lock, and to take it away.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::sql::Inner;
use crate::backend::sql::pool::Purpose;
use crate::backend::sql::statements::Arg;
use crate::backend::sql::topic::topic;
use crate::backend::{Fault, Snapshot};
use crate::values::clock;
use crate::values::health::{Checkup, NodeHealth};
use crate::values::key::Key;
use crate::values::kind::LockMode;

use super::seen::{READ_WRITE, Seen};

pub(in crate::backend::sql) async fn inspect(
    inner: &Arc<Inner>,
    key: &Key,
    timeout: Duration,
) -> Result<Option<Snapshot>, Fault> {
    let now = clock::now();
    let seen = inner.look(key, now, now + timeout).await?;
    Ok(seen.and_then(snapshot))
}

fn snapshot(seen: Seen) -> Option<Snapshot> {
    let plain = Snapshot {
        mode: LockMode::Exclusive,
        holder: None,
        count: 1,
        left: None,
        available: None,
        queued: seen.queued,
        first_waiters: seen.first_waiters,
        readers: 0,
    };
    if let Some(permits) = seen.permits {
        let leased = seen.units;
        return Some(Snapshot {
            mode: if leased > 0 {
                LockMode::Semaphore
            } else {
                LockMode::Counter
            },
            count: u64::try_from(leased).unwrap_or(0),
            left: seen.first_left,
            available: Some(permits - leased),
            ..plain
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
        // By somebody's transaction, which has neither an id nor a lease.
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
    inner: &Arc<Inner>,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Fault> {
    let (now, topic) = (clock::now(), topic(key));
    let args = vec![Arg::text(key.raw()), Arg::text(&topic)];
    let (statement, until) = (&inner.statements.force_release, (now + timeout).into());
    let answer = inner.pool.call(Purpose::Other, statement, args, now, until);
    Ok(!answer.await?.rows.is_empty())
}

/// Asks the server for a sign of life.
pub(in crate::backend::sql) async fn health(inner: &Arc<Inner>, timeout: Duration) -> Checkup {
    let now = clock::now();
    let (statement, until) = (&inner.statements.alive, (now + timeout).into());
    let asked = inner
        .pool
        .call(Purpose::Other, statement, Vec::new(), now, until);
    let answer = asked.await;
    let since = inner.standing.note(answer.is_ok()).wall();
    let answer = answer.map(|answer| answer.sent_at.elapsed());
    let node = NodeHealth::new(
        inner.database.shown(),
        since,
        answer.map_err(|fault| fault.to_string()),
    );
    Checkup {
        nodes: vec![node],
        majority: false,
    }
}
