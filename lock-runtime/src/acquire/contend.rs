//! The one way to wait for a lock or a counter in a store: ask, subscribe, ask again; then sleep until a message, and ask
//! again.
//!
//! One deadline limits the whole wait. Messages are hints: after an expiry or a failover there is none, and any message may
//! be lost. So a contender asks again after 1.2 times [`Options::longest_nap`] at the latest (fair: 1.6 s).
//!
//! What a waiter costs the store: nothing, if another caller of its process is at the front ([`crate::queue`]). The caller at
//! the front costs:
//!
//! - the first request, and the subscriptions;
//! - one request after them, unless the process subscribes already;
//! - one after each [`nap`], and each message that is not a grant. After a release that put it on a waiting list, only these;
//! - two more if it gives up on a waiting list: a last question after a short wait, and, if no caller of its process follows,
//!   one that gives the place back (`release/place.rs`). A writer that gives up asks the last question, too.
//!
//! When the front of readers is admitted, each reader behind it sends a request of its own (`acquire/shared.rs`). A waiter for
//! a fair lock has a place of its own (`acquire/fair.rs`), and gives up like one on a waiting list. Stores without messages are
//! asked again after pauses (`backend/kit/polling.rs`).

use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::Deadline;
use crate::backend::{Fault, Listen};
use crate::hold::Asking;
use crate::values::{Backoff, LockError, Moment, Options, clock, rare};

/// Returns the pauses after faults of the store.
pub(crate) fn pauses_after_faults() -> Backoff {
    Backoff::new(Duration::from_millis(25), Duration::from_millis(500))
}

/// Returns the time until the lease's end, at most the longest nap, a fifth more or less.
pub(crate) fn nap(options: &Options, left: Option<Duration>) -> Duration {
    let cap = options.longest_nap.mul_f64(0.8 + fastrand::f64() * 0.4);
    // A millisecond after the lease's end. At the end itself, the store may still have the lock.
    left.map_or(cap, |left| (left + Duration::from_millis(1)).min(cap))
}

/// The outcome of one request to the store.
pub(crate) enum Asked<T> {
    Granted(T),
    Busy {
        /// The rest of the lease.
        left: Option<Duration>,
        /// Whether a process that may only keep the lock was asked to give it up.
        kept: bool,
    },
    Failed(Fault),
}

impl<T> Asked<T> {
    /// Returns the outcome that another holder has the lock, and does not keep it.
    pub(crate) fn busy(left: Option<Duration>) -> Asked<T> {
        Asked::Busy { left, kept: false }
    }
}

/// A caller that waits for a lock or a counter in a store. Dropping it gives up.
pub(crate) trait Contender {
    type Granted;

    fn attempt(&self) -> &Attempt;

    /// Returns the kind of the request.
    fn asking(&self) -> Asking {
        Asking::For(self.attempt().kind())
    }

    /// Asks the store once. `deadline` bounds the request.
    fn ask(
        &mut self,
        now: Moment,
        deadline: Deadline,
    ) -> impl Future<Output = Asked<Self::Granted>> + Send;

    /// Takes what a message has brought, if the message is enough. No request is under way.
    fn take_reserved(&mut self, _now: Moment) -> Option<Self::Granted> {
        None
    }

    /// Listens for messages after which the store is asked again.
    fn listen(&mut self) -> Box<dyn Listen>;

    /// Whether the store serves it in an order, or keeps others out for it. Then it asks a last question before it gives up.
    fn asks_last(&self) -> bool {
        false
    }

    /// Returns the longest sleep, given the rest of the lease.
    fn nap(&self, left: Option<Duration>) -> Duration {
        nap(&self.attempt().core.options, left)
    }

    /// Counts the caller as waiting, after the store has refused the first request. The default is for callers that are
    /// counted from their first request on, or never.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    fn count_as_waiting(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// Returns `true` if the store is asked again after this fault.
    fn goes_on_after(&self, fault: &Fault) -> bool {
        fault.is_passing()
    }

    fn error(&self, fault: Fault) -> LockError {
        self.attempt().error(fault)
    }

    /// Returns the error of a caller whose time is over. The last definite answer decides.
    fn gives_up(&self, last: LastWords) -> LockError {
        match last.busy {
            Some(left) => self.attempt().busy(left),
            None => self.attempt().gave_up(last.fault),
        }
    }
}

/// The last answers that a contender got before its time was over.
#[derive(Default)]
pub(crate) struct LastWords {
    /// The last definite answer, with the rest of the lease at that time.
    pub(super) busy: Option<Option<Duration>>,
    /// The fault of the requests since then.
    pub(super) fault: Option<Fault>,
}

/// Asks the store once, for a caller that does not wait. If the process that has the lock may only keep it, that process was
/// asked to give it up, so the caller waits for a short time.
pub(crate) async fn ask_once<C: Contender>(
    contender: &mut C,
    now: Moment,
) -> Result<Asked<C::Granted>, LockError> {
    let deadline = contender.attempt().deadline;
    let first = contender.ask(now, deadline).await;
    if !matches!(first, Asked::Busy { kept: true, .. }) {
        return Ok(first);
    }
    match rare(contend(contender, first, None)).await {
        Ok(granted) => Ok(Asked::Granted(granted)),
        Err(LockError::Busy { retry_after, .. }) => Ok(Asked::busy(retry_after)),
        Err(LockError::TooManyWaiters { .. }) => Ok(Asked::busy(None)),
        Err(error) => Err(error),
    }
}

/// Asks until the request is granted or its time is over. `first`: the outcome of the first request, or of the release that has
/// put the holder on a waiting list. `listener`: one that listens since before that.
pub(crate) async fn contend<C: Contender>(
    contender: &mut C,
    first: Asked<C::Granted>,
    mut listener: Option<Box<dyn Listen>>,
) -> Result<C::Granted, LockError> {
    // No reference to the contender lives across an await, because the driver of a transaction may be `Send` and not `Sync`.
    let core = contender.attempt().core.clone();
    let mut deadline = contender.attempt().deadline;
    let mut asked_keeper = false;
    let mut outcome = first;
    let mut pauses = pauses_after_faults();
    let mut last = LastWords::default();
    let (mut was_refused, mut was_answered) = (false, false);
    loop {
        if let (true, Asked::Failed(Fault::Denied(why))) = (was_answered, &outcome) {
            // The user had the right to this request a moment ago, so the refusal may pass.
            outcome = Asked::Failed(Fault::Refused(why.clone()));
        }
        match outcome {
            Asked::Granted(granted) => return Ok(granted),
            Asked::Failed(Fault::Outdated) => {
                // No request was sent. Another holder, with a new listener, asks at once. This repeats only while new
                // connections are opened.
                listener = None;
                outcome = contender.ask(clock::now(), deadline).await;
                continue;
            }
            Asked::Busy { left, kept } => {
                if kept && !std::mem::replace(&mut asked_keeper, true) {
                    let attempt = contender.attempt();
                    if !attempt.deadline.waits() {
                        // Until the message, the release, and the request after it.
                        deadline.lasts(clock::now() + attempt.few_round_trips());
                    }
                    // The next listener may be another one.
                    listener = None;
                }
                was_answered = true;
                last.busy = Some(left);
                last.fault = None;
                pauses.reset();
            }
            Asked::Failed(fault) if !contender.goes_on_after(&fault) => {
                return Err(contender.error(fault));
            }
            Asked::Failed(fault) => {
                if matches!(fault, Fault::TooFew(_)) {
                    // The lock was granted and given back, so an earlier "busy" is not the reason any more. The contender may
                    // also ask as another holder.
                    (last.busy, listener) = (None, None);
                }
                if fault.is_passing_refusal() {
                    // The error at the end must name the missing right or table.
                    last.busy = None;
                    if !std::mem::replace(&mut was_refused, true) {
                        let name = contender.attempt().key().name();
                        core.served.log_refusal(contender.asking(), name, &fault);
                    }
                }
                let before = last.fault.take().filter(|_| deadline.is_over());
                last.fault = Some(fault.at_the_end(before));
            }
        }
        if deadline.is_over() {
            return Err(contender.gives_up(last));
        }
        if contender.asks_last() {
            deadline.asks_a_last_question(|| contender.attempt().few_round_trips());
        }
        contender.count_as_waiting()?;
        let listens_already = listener.is_some();
        if last.fault.is_none() {
            listener.get_or_insert_with(|| contender.listen());
        }
        let nap = contender.nap(last.busy.flatten());
        let pause = match &last.fault {
            Some(_) => pauses.pause(),
            None if listens_already => nap,
            None => core.options.longest_nap,
        };
        let told = async {
            match listener.as_mut().filter(|_| last.fault.is_none()) {
                Some(listener) if listens_already => listener.heard().await,
                // A release between the request and the subscription is missed, so the next request follows the subscription.
                Some(listener) => listener.ready().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = told => {}
            () = deadline.pause(pause) => {}
            () = core.life.closing() => {
                return Err(contender.attempt().sent_away());
            }
        }
        let now = clock::now();
        if deadline.is_over_at(now) {
            // The answer to a further request would come too late, so the last one counts.
            return Err(contender.gives_up(last));
        }
        if let Some(granted) = contender.take_reserved(now) {
            return Ok(granted);
        }
        outcome = contender.ask(now, deadline).await;
    }
}

#[cfg(test)]
mod tests;
