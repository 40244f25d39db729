//! One request to a counter, for a caller who cannot repeat it blindly.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::acquire::attempt::{Attempt, LastWords};
use crate::acquire::checked_request::CheckedRequest;
use crate::acquire::contend::{Asked, Contender, contend, pauses_after_faults};
use crate::backend::{CounterKind, CounterRef, Counters, Fault, Listen, Reply};
use crate::hold::{Asking, Core};
use crate::queue::{Entered, Head, Ticket};
use crate::values::{Key, Kind, LockError, LockName, Moment, Overrides, clock};

/// Notes what the store said, for those who queue behind.
fn note<T>(head: &Head, answer: &Result<T, Fault>) {
    match answer {
        Ok(_) => head.heard_from_store(None),
        Err(fault) if fault.is_passing() => head.heard_from_store(Some(fault)),
        Err(_) => {}
    }
}

/// A counter by its checked name.
pub(crate) struct Counter<'a> {
    pub(crate) core: &'a Arc<Core>,
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
        let counters = core.counters(kind)?;
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

    /// Refuses those who begin something once the manager closes. Callers that end something are let through for longer:
    /// what a body does not give back because of a shutdown, nobody ever will.
    pub(crate) fn if_open(self) -> Result<Self, LockError> {
        self.core.life.check_open(&self.key)?;
        Ok(self)
    }

    /// A request that waits in the local queue of the counter.
    pub(crate) fn attempt(&self, wait: Option<Duration>) -> Result<Attempt, LockError> {
        let request = CheckedRequest {
            key: self.key.clone(),
            hold_options: Overrides::default().hold_options(
                self.key.name(),
                &self.core.options,
                self.core.backend.store().name(),
            )?,
            in_all: None,
            wait,
            min_hold: None,
            reentrant: false,
        };
        Ok(Attempt::new(self.core.clone(), request))
    }

    pub(crate) fn reference(&self) -> CounterRef<'_> {
        CounterRef {
            key: &self.key,
            kind: self.kind,
        }
    }

    /// Sends a request within the call timeout, again only after an answer that says that nothing was done. A shutdown
    /// waits for it.
    pub(crate) async fn once<'b, T>(
        &'b self,
        ask: impl Fn(&'b dyn Counters, CounterRef<'b>, Duration) -> Reply<'b, T>,
    ) -> Result<T, LockError> {
        // Counted before the look: a shutdown that does not see it has stopped the manager before.
        let _under_way = self.core.life.background.enter();
        self.core.life.check_not_stopped(&self.key)?;
        let deadline = clock::now() + self.core.options.call_timeout;
        let mut pauses = pauses_after_faults();
        loop {
            let fault = match ask(self.counters, self.reference(), deadline.remaining()).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let pause = pauses.pause();
            if !fault.is_passing_no_op() || deadline.remaining() <= pause {
                return Err(self.error(fault));
            }
            clock::sleep(pause).await;
        }
    }

    /// Asks until the answer is yes; again after a store that failed if `again` says so. `head`: the turn of a caller
    /// who asks for the others of this process, too.
    pub(crate) async fn until<'b>(
        &'b self,
        attempt: &Attempt,
        head: Option<&Head>,
        ask: impl FnMut(Duration) -> Reply<'b, bool> + Send,
        again: impl Fn(&Fault) -> bool + Send + Sync,
    ) -> Result<(), LockError> {
        let mut caller = CounterCaller {
            counter: self,
            attempt,
            head,
            ask,
            again,
        };
        let first = caller.ask(clock::now()).await;
        contend(&mut caller, first).await
    }

    /// The fault as the caller's error; one whose outcome is unknown says so.
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

/// Waits behind the others of this process who want something of the counter.
pub(crate) async fn ticket(attempt: &Attempt) -> Result<Ticket, LockError> {
    let waiter = match attempt.enter(clock::now())? {
        Entered::Head(head) => return Ok(Ticket::Head(head)),
        Entered::Queued(waiter) => waiter,
        // No counter is ever kept.
        Entered::Held(_) | Entered::Unsuited(..) => return Err(attempt.busy(None)),
    };
    let ticket = attempt.wait_in_queue(waiter).await?;
    match &ticket {
        // A caller who comes to the head when its time is over makes no call any more.
        Ticket::Head(head)
            if attempt.deadline.is_over() && attempt.request.wait != Some(Duration::ZERO) =>
        {
            Err(attempt.gave_up(head.fault()))
        }
        _ => Ok(ticket),
    }
}

/// A caller who asks the store until the answer is yes.
struct CounterCaller<'a, A, G> {
    counter: &'a Counter<'a>,
    attempt: &'a Attempt,
    head: Option<&'a Head>,
    ask: A,
    again: G,
}

impl<'a, 'b, A, G> Contender for CounterCaller<'a, A, G>
where
    A: FnMut(Duration) -> Reply<'b, bool> + Send,
    G: Fn(&Fault) -> bool + Send + Sync,
{
    type Granted = ();

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment) -> Asked<()> {
        let timeout = self
            .attempt
            .deadline
            .cut(self.counter.core.options.call_timeout, now);
        let answer = (self.ask)(timeout).await;
        let answer = self.counter.core.served.judge(self.asking(), answer);
        if let Some(head) = self.head {
            note(head, &answer);
        }
        match answer {
            Ok(true) => Asked::Granted(()),
            Ok(false) => Asked::Busy(None),
            Err(fault) => Asked::Failed(fault),
        }
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        let counter = self.counter;
        counter.counters.listen_to(counter.reference())
    }

    fn count_as_waiting(&self) -> Result<(), LockError> {
        self.head.map_or(Ok(()), Head::count_as_waiting)
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

    /// Returns the last fault, if there was one, and not that the lock is busy: a caller who waits for an event must
    /// learn that the store may have missed it.
    fn gives_up(&self, last: LastWords) -> LockError {
        match last.fault {
            Some(fault) => self.error(fault),
            None => self.attempt.busy(None),
        }
    }
}

#[cfg(test)]
mod tests;
