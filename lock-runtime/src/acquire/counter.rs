//! Requests to a counter. They name no holder, so one whose outcome is unknown is not repeated: two might count. A wait
//! repeats its question where that is harmless ([`Counter::until`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::Deadline;
use crate::acquire::contend::{Asked, Contender, LastWords, contend, pauses_after_faults};
use crate::backend::{CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::hold::{Asking, Core};
use crate::queue::{Entered, Front, Ticket};
use crate::values::{Key, Kind, LockError, LockName, Moment, clock};

/// The least time for an answer, even if the caller's wait ends before. An answer that nobody receives may have taken
/// permits that nobody gives back, and a latch that was closed all the time must not look like a store that is away.
const LEAST_ANSWER: Duration = Duration::from_millis(200);

/// A counter by its checked name.
pub(crate) struct Counter<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(crate) counters: &'a dyn Counters,
    pub(crate) key: Arc<Key>,
    kind: CounterKind,
}

impl Counter<'_> {
    /// Each request to a counter begins here, so all of them take part in tokio's cooperative budget.
    ///
    /// # Errors
    /// [`LockError::InvalidName`]; [`LockError::InvalidConfig`] outside a tokio runtime.
    pub(crate) async fn new<'a>(
        core: &'a Arc<Core>,
        name: &LockName,
        kind: CounterKind,
    ) -> Result<Counter<'a>, LockError> {
        coop::consume_budget().await;
        let counters = core.counters(kind.plural())?;
        let key = core.key(name, Kind::Semaphore)?;
        core.start_here()?;
        let key = Arc::new(key);
        Ok(Counter {
            core,
            counters,
            key,
            kind,
        })
    }

    /// Refuses requests that begin something once the manager closes. Requests that end something are served for longer: if a
    /// shutdown kept a body from giving back its permits, no other code would.
    pub(crate) fn if_open(self) -> Result<Self, LockError> {
        self.core.life.check_open(&self.key)?;
        Ok(self)
    }

    pub(crate) fn reference(&self) -> CounterRef<'_> {
        CounterRef {
            key: &self.key,
            kind: self.kind,
        }
    }

    /// Sends a request within the call timeout, and again only if the answer says that nothing was done. A shutdown waits for
    /// it.
    pub(crate) async fn once<'b, T>(
        &'b self,
        ask: impl Fn(&'b dyn Counters, CounterRef<'b>, Duration) -> Reply<'b, T>,
    ) -> Result<T, LockError> {
        // It is counted before the check. A shutdown that does not see the count has closed the manager before the check.
        let _under_way = self.core.life.background.enter();
        self.core.life.check_not_stopped(&self.key)?;
        let ask = |timeout| ask(self.counters, self.reference(), timeout);
        let timeout = self.core.options.call_timeout;
        let answer = until_done(timeout, timeout, ask).await;
        answer.map_err(|fault| self.error(fault))
    }

    /// Asks until the answer is yes, also after faults if `again` allows that. `front`: that of a caller that asks for the other
    /// callers of this process, too.
    pub(crate) async fn until<'b>(
        &'b self,
        attempt: &Attempt,
        front: Option<&Front>,
        ask: impl FnMut(Duration) -> Reply<'b, bool> + Send,
        again: fn(&Fault) -> bool,
    ) -> Result<(), LockError> {
        let mut caller = CounterCaller {
            counter: self,
            attempt,
            front,
            ask,
            again,
        };
        let first = caller.ask(clock::now(), attempt.deadline).await;
        contend(&mut caller, first, None).await
    }

    /// Returns the fault as the caller's error, which says so if the outcome is unknown.
    pub(crate) fn error(&self, fault: Fault) -> LockError {
        let fault = match fault {
            Fault::Unknown(source) => {
                Fault::unknown(format!("unknown whether it was done: {source}"))
            }
            fault => fault,
        };
        fault.into_error(self.key.name())
    }
}

/// Sends a request, and again for `patience` while the answers say that nothing was done.
pub(crate) async fn until_done<'b, T>(
    patience: Duration,
    call_timeout: Duration,
    ask: impl Fn(Duration) -> Reply<'b, T>,
) -> Result<T, Fault> {
    let deadline = clock::now() + patience;
    let mut pauses = pauses_after_faults();
    loop {
        let fault = match ask(call_timeout.min(deadline.remaining())).await {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        let goes_on = fault.is_passing_no_op();
        if !goes_on || !deadline.leaves_time_after(pauses.pause()).await {
            return Err(fault);
        }
    }
}

/// Waits behind the other callers of this process that wait for the counter. Returns `None` if the caller before has let
/// this one go: then nothing is left to wait for.
pub(crate) async fn reach_front(attempt: &Attempt) -> Result<Option<Front>, LockError> {
    let waiter = match attempt.enter(clock::now(), true)? {
        Entered::Front(front) => return Ok(Some(front)),
        Entered::Queued(waiter) => waiter,
        // The process never keeps a counter, and this caller queues.
        Entered::Held(..) | Entered::Unsuited(..) | Entered::Behind => {
            return Err(attempt.busy(None));
        }
    };
    let longer = attempt.core.options.call_timeout.min(LEAST_ANSWER);
    match attempt.wait_in_queue(waiter, longer).await? {
        // A caller whose time is over asks no more.
        Ticket::Front(front) if attempt.deadline.is_over() && attempt.deadline.waits() => {
            Err(attempt.gave_up(front.fault()))
        }
        Ticket::Front(front) => Ok(Some(front)),
        Ticket::Go => Ok(None),
        // Only locks hand holds over.
        Ticket::Held(_) => Err(attempt.busy(None)),
    }
}

/// A caller that asks the store until the answer is yes.
struct CounterCaller<'a, A> {
    counter: &'a Counter<'a>,
    attempt: &'a Attempt,
    front: Option<&'a Front>,
    ask: A,
    /// Whether the store is asked again after this fault.
    again: fn(&Fault) -> bool,
}

impl<'b, A: FnMut(Duration) -> Reply<'b, bool> + Send> Contender for CounterCaller<'_, A> {
    type Granted = ();

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment, deadline: Deadline) -> Asked<()> {
        let call = self.counter.core.options.call_timeout;
        let timeout = deadline.cut(call, now);
        let answer = (self.ask)(timeout.max(call.min(LEAST_ANSWER))).await;
        let answer = self.counter.core.served.judge(self.asking(), answer);
        let fault = answer.as_ref().err();
        if let Some(front) = self.front
            && fault.is_none_or(Fault::is_passing)
        {
            front.heard_from_store(fault);
        }
        match answer {
            Ok(true) => Asked::Granted(()),
            Ok(false) => Asked::busy(None),
            Err(fault) => Asked::Failed(fault),
        }
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        let counter = self.counter;
        counter.counters.listen_to(counter.reference())
    }

    fn count_as_waiting(&self) -> Result<(), LockError> {
        self.front.map_or(Ok(()), Front::count_as_waiting)
    }

    fn asking(&self) -> Asking {
        Asking::Count(self.counter.kind)
    }

    fn goes_on_after(&self, fault: &Fault) -> bool {
        (self.again)(fault)
    }

    fn error(&self, fault: Fault) -> LockError {
        self.counter.error(fault)
    }

    /// Returns the last fault, if there was one, in place of "busy": a caller that waits for an event must learn that the store
    /// may have missed it.
    fn gives_up(&self, last: LastWords) -> LockError {
        match last.fault {
            Some(fault) => self.error(fault),
            None => self.attempt.busy(None),
        }
    }
}

#[cfg(test)]
mod tests;
