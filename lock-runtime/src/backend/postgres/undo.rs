//! What undoes an acquire when nobody knows whether it happened.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::listen::topic;
use super::pool::Purpose;
use super::statements::Arg;
use crate::backend::{AcquireRequest, Fault};
use crate::values::backoff::Backoff;
use crate::values::clock::{self, Moment};
use crate::values::count::Counted;
use crate::values::holder::HolderId;
use crate::values::key::Key;

/// The estimate of the server's time may be late by a round trip, and so may a lease's end.
const SLACK: Duration = Duration::from_secs(1);

/// Compensates on drop unless it was disarmed.
pub(super) struct Undo<'a> {
    inner: &'a Arc<Inner>,
    request: &'a AcquireRequest<'a>,
    not_after: u64,
    deadline: Moment,
    armed: bool,
}

impl<'a> Undo<'a> {
    pub(super) fn armed(
        inner: &'a Arc<Inner>,
        request: &'a AcquireRequest<'a>,
        not_after: u64,
        deadline: Moment,
    ) -> Undo<'a> {
        Undo {
            inner,
            request,
            not_after,
            deadline,
            armed: true,
        }
    }

    pub(super) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let hold_ref = self.request.hold_ref;
        let compensation = Compensation {
            inner: self.inner.clone(),
            key: hold_ref.key.clone(),
            holder: hold_ref.holder,
            not_after: self.not_after,
            over: self.deadline + self.request.ttl.duration() + SLACK,
            _pending: self.inner.pending.enter(),
        };
        self.inner.handle.spawn(compensation.run());
    }
}

/// A release of what may have been acquired, repeated until it cannot happen any more.
struct Compensation {
    inner: Arc<Inner>,
    key: Key,
    holder: HolderId,
    /// Until when the server executes the acquire, in µs of its clock.
    not_after: u64,
    /// When the lease, had it been granted at the last moment, has ended by itself.
    over: Moment,
    /// Keeps the backend from closing.
    _pending: Counted,
}

impl Compensation {
    async fn run(self) {
        let (holder, topic) = (self.holder.text(), topic(&self.key));
        let mut pauses = Backoff::new(Duration::from_millis(2), Duration::from_millis(250));
        while !self.over.has_passed() {
            let now = clock::now();
            let deadline = (now + self.inner.call_timeout).earlier(self.over);
            let settle = &self.inner.statements.settle;
            let args = vec![
                Arg::text(self.key.raw()),
                Arg::text(&holder),
                Arg::text(&topic),
            ];
            let answer = self
                .inner
                .pool
                .call(Purpose::Other, settle, args, now, deadline.into());
            let early = match answer.await {
                Ok(answer) => {
                    let time = answer
                        .rows
                        .first()
                        .and_then(|row| row.try_get::<_, i64>(0).ok());
                    let time = time.and_then(|time| u64::try_from(time).ok()).unwrap_or(0);
                    if time > self.not_after {
                        return;
                    }
                    // Once more when the acquire is too late for certain.
                    Duration::from_micros(self.not_after - time)
                }
                Err(Fault::Closed(_)) => return,
                Err(_) => Duration::ZERO,
            };
            clock::sleep(pauses.pause().max(early.min(self.inner.call_timeout))).await;
        }
    }
}
