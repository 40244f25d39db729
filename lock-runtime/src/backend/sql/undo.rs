//! Undoes an acquire when its outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use super::{Purpose, SqlShared, malformed, named};
use crate::backend::{AcquireRequest, Fault, HoldRef};
use crate::values::{Backoff, Moment, clock};

/// A margin: the estimate of the server's time may be late by a round trip, and so may a lease's end.
const SLACK: Duration = Duration::from_secs(1);

/// Begins to release what may have been acquired, again and again until that cannot happen any more. The server executes
/// the acquire until `not_after`, in µs of its clock.
pub(super) fn compensate(
    inner: &Arc<SqlShared>,
    request: &AcquireRequest<'_>,
    not_after: u64,
    deadline: Moment,
) {
    let (key, holder) = (request.hold_ref.key.clone(), request.hold_ref.holder);
    // The time at which the lease has ended by itself, even if it was granted at the last moment.
    let over = deadline + request.ttl.duration() + SLACK;
    // The count that keeps the backend from closing.
    let pending = inner.pending.enter();
    let own = inner.clone();
    let compensating = async move {
        let _pending = pending;
        let mut pauses = Backoff::new(Duration::from_millis(2), Duration::from_millis(250));
        while !over.has_passed() {
            let deadline = (clock::now() + own.call_timeout).earlier(over);
            let hold_ref = HoldRef::one(&key, holder);
            let early = match settle(&own, Purpose::Undo, hold_ref, deadline).await {
                Ok(time) if time > not_after => return,
                // The release is sent once more when the acquire is certainly too late.
                Ok(time) => Duration::from_micros(not_after - time),
                Err(Fault::Closed(_)) => return,
                Err(_) => Duration::ZERO,
            };
            clock::sleep(pauses.pause().max(early.min(own.call_timeout))).await;
        }
    };
    inner.handle.spawn(compensating);
}

/// Gives back whatever the holder has at the key or is about to have. Returns a time of the server's clock in µs:
/// acquires that are dated before it cannot happen any more.
pub(super) async fn settle(
    inner: &Arc<SqlShared>,
    purpose: Purpose,
    hold_ref: HoldRef<'_>,
    deadline: Moment,
) -> Result<u64, Fault> {
    let statement = &inner.statements.settle;
    let asked = inner.run_for(purpose, statement, named(hold_ref), deadline);
    let answer = asked.await?;
    answer.row().ok_or_else(malformed)?.number(0)
}
