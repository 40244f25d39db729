//! A caller queues behind the others of its process. `head_seat.rs` goes on once it is at their head.

use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::contend::{Asked, Contender, unless_kept};
use crate::acquire::head_seat::{HeadSeat, at_the_head};
use crate::backend::Fault;
use crate::hold::{HoldHandle, Kept};
use crate::observe;
use crate::queue::{self, Entered, Head, Turn, Waiter};
use crate::release::kept;
use crate::values::{LockError, Moment, clock};

/// A head that was not heard of for this and the call timeout is not polled any more.
const SILENCE: Duration = Duration::from_secs(3);
/// A wait behind this process's own hold that lasts so long is worth a warning.
const LONG_LOCAL_WAIT: Duration = Duration::from_secs(1);

/// Queues behind the others of this process, then deals with the store for all of them. `now` comes back as it is then.
pub(crate) async fn acquire(
    attempt: &Attempt,
    mut now: Moment,
) -> Result<(HoldHandle, Moment), LockError> {
    loop {
        let turn = match attempt.enter()? {
            Entered::Head(head) => Turn::Head(head),
            Entered::Kept(head, kept) => match attempt.take_kept(head, kept, now) {
                Some(handle) => return Ok((handle, now)),
                // It is being given back: the first of those who wait by then gets it.
                None => continue,
            },
            Entered::Queued(waiter) => {
                let turn = attempt.wait_in_queue(waiter).await?;
                now = clock::now();
                turn
            }
        };
        match turn {
            Turn::Held(unclaimed) => {
                if let Some(handle) = unclaimed.claim() {
                    return Ok((handle, now));
                }
                // Lost before this caller was polled: it asks again.
            }
            Turn::Head(head) => {
                let handle = at_the_head(attempt, head, now).await?;
                return Ok((handle, clock::now()));
            }
            // Said to readers alone.
            Turn::Go => {}
        }
    }
}

/// Asks the store once, if nobody of this process is before the caller. `None` if somebody is.
pub(crate) async fn try_acquire(attempt: &Attempt) -> Result<Option<Asked<HoldHandle>>, LockError> {
    let now = attempt.deadline.since;
    let turn = match attempt.core.queues.enter_at_once(attempt.key()) {
        Some(Entered::Head(head)) => return ask_once(attempt, head, now).await.map(Some),
        Some(Entered::Kept(head, kept)) => match attempt.take_kept(head, kept, now) {
            Some(handle) => return Ok(Some(Asked::Granted(handle))),
            // Boxed, as the others: a try of a free lock need not carry its size.
            None => Box::pin(short_queue(attempt)).await?,
        },
        Some(Entered::Queued(_)) | None if attempt.kind().is_exclusive() => return Ok(None),
        Some(Entered::Queued(_)) | None => Box::pin(short_queue(attempt)).await?,
    };
    match turn {
        Some(Turn::Head(head)) => ask_once(attempt, head, clock::now()).await.map(Some),
        Some(Turn::Held(unclaimed)) => Ok(unclaimed.claim().map(Asked::Granted)),
        Some(Turn::Go) | None => Ok(None),
    }
}

/// Asks the store once, or as often as it takes to hear of a process that may only keep the lock.
async fn ask_once(
    attempt: &Attempt,
    head: Head,
    now: Moment,
) -> Result<Asked<HoldHandle>, LockError> {
    let mut seat = HeadSeat::new(attempt, head);
    let first = seat.ask(now).await;
    unless_kept(&mut seat, first).await
}

/// The turn of somebody who does not wait, at a key that may admit several, or is being given back: near, unless the one
/// at the head has to wait itself.
async fn short_queue(attempt: &Attempt) -> Result<Option<Turn>, LockError> {
    let turn = loop {
        break match attempt.enter()? {
            Entered::Head(head) => Ok(Turn::Head(head)),
            // Somebody was quicker, and is done with it already.
            Entered::Kept(head, kept) => match attempt.take_kept(head, kept, clock::now()) {
                Some(handle) => Ok(Turn::Held(handle.unclaimed())),
                None => continue,
            },
            Entered::Queued(waiter) => attempt.wait_in_queue(waiter).await,
        };
    };
    match turn {
        Ok(turn) => Ok(Some(turn)),
        Err(LockError::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Attempt {
    /// Takes the lock that this process keeps. `None` if it cannot serve the request: it is then given back.
    fn take_kept(&self, head: Head, kept: Kept, now: Moment) -> Option<HoldHandle> {
        let options = self.request.hold_options;
        match HoldHandle::take_kept(&self.core, head, kept, options, now) {
            Ok(handle) => Some(handle),
            Err((head, idle)) => {
                kept::give_back(&self.core, head, idle);
                None
            }
        }
    }

    /// Becomes the head of the local queue, or waits in it.
    pub(crate) fn enter(&self) -> Result<Entered, LockError> {
        self.core
            .queues
            .enter(self.key(), self.request.hold_options)
    }

    /// Waits in the local queue.
    pub(crate) async fn wait_in_queue(&self, mut waiter: Waiter) -> Result<Turn, LockError> {
        let deadline = &self.deadline;
        let timeout = self.core.options.call_timeout;
        let ends_before = |at: Moment| deadline.until.map_or(at, |until| until.earlier(at));
        let warn_at = deadline.since + LONG_LOCAL_WAIT;
        let mut timer = std::pin::pin!(clock::sleep_until(ends_before(warn_at)));
        let mut warned = false;
        loop {
            tokio::select! {
                biased;
                turn = waiter.turn() => return turn.ok_or_else(|| queue::closed(self.key())),
                () = timer.as_mut() => {}
            }
            if deadline.is_over() {
                // The head waits for its first answer: it may be that the store is away, and then "busy" would be a lie.
                if let Some(news) = waiter.first_news() {
                    // A caller who does not wait at all still gets that one answer.
                    let longer = match self.request.wait {
                        Some(Duration::ZERO) => timeout,
                        _ => Duration::ZERO,
                    };
                    tokio::select! {
                        biased;
                        turn = waiter.turn() => return turn.ok_or_else(|| queue::closed(self.key())),
                        () = news => {}
                        () = clock::sleep(longer) => {
                            return Err(self.gave_up(Some(Fault::unknown("no answer yet"))));
                        }
                    }
                }
                return Err(self.gave_up(waiter.fault()));
            }
            if !std::mem::replace(&mut warned, true)
                && let Some(holder) = waiter.blocked_by()
            {
                let label = self.request.hold_options.label.lock;
                observe::long_local_wait(self.key().name(), label, holder);
            }
            waiter.look_at_head();
            let next_look = clock::now() + timeout + SILENCE;
            timer.as_mut().reset(ends_before(next_look).tick());
        }
    }
}

#[cfg(test)]
mod tests;
