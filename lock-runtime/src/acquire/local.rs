//! A caller waits in the local queue of its process. At the front of the queue, `front_seat.rs` continues.

use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::contend::{Asked, ask_once};
use crate::acquire::front_seat::FrontSeat;
use crate::backend::Fault;
use crate::hold::{Hold, HoldHandle};
use crate::observe::{self, metrics};
use crate::queue::{Entered, Ticket, Waiter};
use crate::release::idle;
use crate::values::{Counted, LockError, Moment, clock, rare};

/// The wait behind a hold of the same process after which a warning is logged.
const LONG_LOCAL_WAIT: Duration = Duration::from_secs(1);

/// Waits in the local queue, then asks the store for all callers of the process. Returns the time at the end.
pub(crate) async fn acquire(
    attempt: &Attempt,
    mut now: Moment,
) -> Result<(HoldHandle, Moment), LockError> {
    let seat = loop {
        let waiter = match attempt.enter(now, true)? {
            Entered::Front(front) => break FrontSeat::first(attempt, front),
            Entered::Held(hold, counted) => return Ok((attempt.begins(hold, counted), now)),
            Entered::Unsuited(tenure, turn) => {
                // The first caller that waits by then gets the lock.
                idle::give_back(&attempt.core, tenure, *turn, now);
                continue;
            }
            // It queues.
            Entered::Behind => return Err(attempt.busy(None)),
            Entered::Queued(waiter) => waiter,
        };
        let ticket = attempt.wait_in_queue(waiter, Duration::ZERO).await?;
        now = clock::now();
        match ticket {
            Ticket::Held(offer) => {
                if let Some(handle) = offer.claim() {
                    return Ok((handle, now));
                }
                // The lock was lost before this caller was polled, so the caller asks again.
            }
            Ticket::Front(front) => break FrontSeat::new(attempt, front),
            // Only readers get this ticket.
            Ticket::Go => {}
        }
    };
    let handle = seat.acquire(now).await?;
    Ok((handle, clock::now()))
}

/// Asks the store once, or until a process that may only keep the lock has given it up or not. A caller behind others of this
/// process queues if the key may admit several or is being given back: it is soon at the front, unless the caller there has to
/// wait itself. Otherwise the lock is busy.
pub(crate) async fn try_acquire(attempt: &Attempt) -> Result<Asked<HoldHandle>, LockError> {
    let mut now = attempt.deadline.since;
    let mut queues = !attempt.kind().is_exclusive();
    let mut seat = loop {
        let waiter = match attempt.enter(now, queues)? {
            Entered::Front(front) => break FrontSeat::first(attempt, front),
            Entered::Held(hold, counted) => {
                return Ok(Asked::Granted(attempt.begins(hold, counted)));
            }
            Entered::Unsuited(tenure, turn) => {
                idle::give_back(&attempt.core, tenure, *turn, now);
                queues = true;
                now = clock::now();
                continue;
            }
            Entered::Behind => return Ok(Asked::busy(None)),
            Entered::Queued(waiter) => waiter,
        };
        match rare(attempt.wait_in_queue(waiter, Duration::ZERO)).await {
            Ok(Ticket::Front(front)) => {
                now = clock::now();
                break FrontSeat::new(attempt, front);
            }
            Ok(Ticket::Held(offer)) => {
                return Ok(offer.claim().map_or(Asked::busy(None), Asked::Granted));
            }
            Ok(Ticket::Go) | Err(LockError::Busy { .. }) => return Ok(Asked::busy(None)),
            Err(error) => return Err(error),
        }
    };
    ask_once(&mut seat, now).await
}

impl Attempt {
    /// Returns the handle of a turn that has begun in a kept lock.
    fn begins(&self, hold: Hold, counted: Counted) -> HoldHandle {
        let options = self.request.hold_options;
        if options.max_hold.is_some() {
            self.core.watch.ends_earlier(hold.tenure());
        }
        metrics::handed_over(options.label, self.kind());
        HoldHandle::begins(&self.core, hold, options, counted)
    }

    /// Takes the front of the local queue, or, if the caller `queues`, a place in the queue.
    pub(crate) fn enter(&self, now: Moment, queues: bool) -> Result<Entered, LockError> {
        let (options, gives_up) = (self.request.hold_options, self.deadline.until);
        let local = &self.core.queues;
        local.enter(self.key(), options, now, gives_up, queues)
    }

    /// Waits in the local queue. When its time is over, a caller that waits for `longer` still gets the front's first answer in
    /// that time.
    pub(crate) async fn wait_in_queue(
        &self,
        mut waiter: Waiter,
        longer: Duration,
    ) -> Result<Ticket, LockError> {
        let deadline = &self.deadline;
        let timeout = self.core.options.call_timeout;
        let ends_before = |at: Moment| deadline.until.map_or(at, |until| until.earlier(at));
        let warn_at = deadline.since + LONG_LOCAL_WAIT;
        let mut timer = std::pin::pin!(clock::sleep_until(ends_before(warn_at)));
        let mut warned = false;
        loop {
            tokio::select! {
                biased;
                ticket = waiter.ticket() => return ticket.ok_or_else(|| self.sent_away()),
                () = timer.as_mut() => {}
            }
            if !warned
                && !deadline.is_over()
                && let Some(holder) = waiter.blocked_by()
            {
                warned = true;
                let label = self.request.hold_options.label.lock;
                observe::long_local_wait(self.key().name(), label, holder);
            }
            waiter.look_at_front(clock::now());
            if deadline.is_over() {
                // The front may wait for its first answer. If the store is away, "busy" would be wrong.
                let news = waiter.first_news();
                let heard = async {
                    if let Some(news) = news {
                        news.await;
                    }
                };
                // A caller that does not wait still gets this one answer.
                let longer = if deadline.waits() { longer } else { timeout };
                return tokio::select! {
                    biased;
                    // The look may have given it the front of a caller that is not polled any more.
                    ticket = waiter.ticket() => ticket.ok_or_else(|| self.sent_away()),
                    () = heard => Err(self.gave_up(waiter.fault())),
                    () = clock::sleep(longer) => {
                        Err(self.gave_up(Some(Fault::unknown("no answer yet"))))
                    }
                };
            }
            let next_look = clock::now() + self.core.queues.silence;
            timer.as_mut().reset(ends_before(next_look).tick());
        }
    }
}

#[cfg(test)]
mod tests;
