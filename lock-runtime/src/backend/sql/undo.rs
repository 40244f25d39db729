//! Undoes an acquire when its outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use super::{Arg, Purpose, SqlShared, malformed, topic};
use crate::backend::{AcquireRequest, Fault};
use crate::values::{Backoff, Counted, HolderId, Key, Moment, clock};

/// A margin: the estimate of the server's time may be late by a round trip, and so may a lease's end.
const SLACK: Duration = Duration::from_secs(1);

/// A release of what may have been acquired, repeated until it cannot happen any more.
pub(super) struct SqlCompensation {
    inner: Arc<SqlShared>,
    key: Key,
    holder: HolderId,
    /// The time until which the server executes the acquire, in µs of its clock.
    not_after: u64,
    /// The time at which the lease has ended by itself, even if it was granted at the last moment.
    over: Moment,
    /// The count that keeps the backend from closing.
    _pending: Counted,
}

impl SqlCompensation {
    pub(super) fn start(
        inner: &Arc<SqlShared>,
        request: &AcquireRequest<'_>,
        not_after: u64,
        deadline: Moment,
    ) {
        let hold_ref = request.hold_ref;
        let compensation = SqlCompensation {
            inner: inner.clone(),
            key: hold_ref.key.clone(),
            holder: hold_ref.holder,
            not_after,
            over: deadline + request.ttl.duration() + SLACK,
            _pending: inner.pending.enter(),
        };
        inner.handle.spawn(compensation.run());
    }

    async fn run(self) {
        let mut pauses = Backoff::new(Duration::from_millis(2), Duration::from_millis(250));
        while !self.over.has_passed() {
            let early = match self.settle_once().await {
                Ok(time) if time > self.not_after => return,
                // The release is sent once more when the acquire is certainly too late.
                Ok(time) => Duration::from_micros(self.not_after - time),
                Err(Fault::Closed(_)) => return,
                Err(_) => Duration::ZERO,
            };
            clock::sleep(pauses.pause().max(early.min(self.inner.call_timeout))).await;
        }
    }

    async fn settle_once(&self) -> Result<u64, Fault> {
        let deadline = (clock::now() + self.inner.call_timeout).earlier(self.over);
        settle(&self.inner, Purpose::Undo, &self.key, self.holder, deadline).await
    }
}

/// Gives back whatever the holder has at the key or is about to have. Returns a time of the server's clock in µs:
/// acquires that are dated before it cannot happen any more.
pub(super) async fn settle(
    inner: &Arc<SqlShared>,
    purpose: Purpose,
    key: &Key,
    holder: HolderId,
    deadline: Moment,
) -> Result<u64, Fault> {
    let args = vec![
        Arg::text(key.raw()),
        Arg::Text(holder.text()),
        Arg::Text(topic(key)),
    ];
    let (statement, now) = (&inner.statements.settle, clock::now());
    let asked = inner.run_for(purpose, statement, args, now, deadline);
    let answer = asked.await?;
    answer.row().ok_or_else(malformed)?.number(0)
}
