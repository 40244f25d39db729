//! The end of a hold: given back to the store, or handed over to the next local waiter.
//!
//! A [`Departure`] is what the last guard leaves behind. The caller that drives it may be dropped at any time: it then goes
//! on in the background. All requests name the holder, so a repeated one can hurt nobody; a lock that was passed on without
//! the store is not given back under that name before its last hold has left.

pub(crate) mod downgrade;
pub(crate) mod hand_over;
mod keep;
pub(crate) mod kept;
pub(crate) mod place;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use self::hand_over::{NextHolder, Passed, pass_on};
use self::keep::Covered;
use crate::backend::{Fault, HoldRef, Released};
use crate::hold::{Core, Hold, HoldHandle, Left, current_runtime};
use crate::observe;
use crate::queue::{Head, Legacy};
use crate::release::downgrade::Downgrade;
use crate::values::ttl::LEAST_CALL;
use crate::values::{Backoff, Counted, LockError, LostReason, Moment, UnusedTokens, clock};

/// A release under way; `None` if it is over. Boxed, so that what waits for it stays small while the body runs.
#[derive(Default)]
pub(crate) struct Ending(Option<UnderWay>);

type UnderWay = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

impl Ending {
    pub(crate) fn under_way(
        release: impl Future<Output = Result<(), LockError>> + Send + 'static,
    ) -> Ending {
        Ending(Some(Box::pin(release)))
    }
}

impl Future for Ending {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(release) => release.as_mut().poll(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl HoldHandle {
    /// Ends the handle. The future may be dropped at any time; the release goes on in the background.
    pub(crate) fn release(mut self) -> Ending {
        match self.end() {
            Ok(None) => Ending::default(),
            Ok(Some(Next::Depart(departure))) => Ending::under_way(departure.explicit()),
            Ok(Some(Next::Downgrade(downgrade))) => Ending::under_way(downgrade.explicit()),
            Err(lost) => Ending::under_way(std::future::ready(Err(lost))),
        }
    }

    /// Leaves the hold; what is then to be done at the store, if this was the last share of a good one.
    fn end(&mut self) -> Result<Option<Next>, LockError> {
        let Some((left, _counted)) = self.leave() else {
            return Ok(None);
        };
        let (core, hold) = (self.core().clone(), self.hold().clone());
        match left {
            Left::Shared => Ok(None),
            Left::Reading(head) => Ok(Some(Next::Downgrade(Downgrade::new(core, hold, head)))),
            Left::Good {
                head,
                left_at,
                keep_until,
                tenure,
                mut keep_for,
                keeping: _,
                kept,
            } => {
                let mut unused = None;
                let head = match (head, kept, tenure) {
                    (Some(head), Some(kept), _) => {
                        match kept::stay(&core, head, kept, left_at) {
                            Ok(()) => return Ok(None),
                            // Somebody of this process came just now, or others are to have a chance.
                            Err((head, idle)) => {
                                core.watch.remove(&idle);
                                // Somebody may have asked for it already.
                                keep_for = keep_for.filter(|_| idle.known_loss().is_none());
                                Some(head)
                            }
                        }
                    }
                    (Some(head), None, Some(tenure)) => {
                        match pass_on(&core, &hold, head, tenure, left_at) {
                            Passed::On => return Ok(None),
                            Passed::Not(head, tokens) => {
                                unused = tokens;
                                Some(head)
                            }
                            Passed::Unknown(head) => {
                                keep_for = None;
                                head
                            }
                        }
                    }
                    (head, _, _) => head,
                };
                let mut departure = Departure::new(core, hold, head, left_at, keep_until, keep_for);
                departure.unused = unused;
                Ok(Some(Next::Depart(departure)))
            }
            Left::Lost { reason, last } => {
                let error = hold.lost_error(reason, false);
                if last {
                    clean_up(core, hold, reason);
                }
                Err(error)
            }
        }
    }
}

impl Drop for HoldHandle {
    fn drop(&mut self) {
        match self.end() {
            Ok(Some(Next::Downgrade(downgrade))) => downgrade.in_background(),
            // A departure that is dropped goes on in the background. An error was told to those who watch for loss.
            other => drop(other),
        }
    }
}

/// The work at the store when a handle has left its hold.
enum Next {
    Depart(Departure),
    Downgrade(Downgrade),
}

/// A lost hold may still stand in the store under its id. Now that nobody acts on it any more, others need not wait
/// for its lease to run out.
fn clean_up(core: Arc<Core>, hold: Arc<Hold>, reason: LostReason) {
    // The word of a single store is final.
    let is_gone = matches!(reason, LostReason::Refused | LostReason::ForceReleased);
    if is_gone && !core.backend.traits().divided {
        return;
    }
    core.clone().life.spawn(async move {
        let until = clock::now() + hold.ttl().duration();
        undo(&core, hold.hold_ref(), until).await;
    });
}

/// The pauses between two tries of what ends a hold and got no answer.
pub(crate) fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
}

/// A good hold whose last sharer has left.
#[derive(Debug)]
struct Departure {
    core: Arc<Core>,
    hold: Arc<Hold>,
    /// This process's turn at the key, where holds own it.
    head: Option<Head>,
    /// Nothing is left to do at the store.
    done: bool,
    /// A release was sent and not answered: "not held" may then be our own doing.
    unanswered: bool,
    /// A task of the manager's runtime drives it. If even that is dropped, the runtime is gone, and the lease ends
    /// the hold.
    in_background: bool,
    /// Keeps a shutdown waiting, whatever drives the departure: a caller's release is not cut off half-way.
    _under_way: Counted,
    left_at: Moment,
    /// Until when the key stays taken.
    keep_until: Option<Moment>,
    /// For how long this process keeps the lock, if nobody waits for it.
    keep_for: Option<Duration>,
    /// Tokens that go back with the lock.
    unused: Option<UnusedTokens>,
    /// When the store's lease is over at the latest: until then a release without an answer is repeated.
    over_at: Moment,
}

impl Departure {
    fn new(
        core: Arc<Core>,
        hold: Arc<Hold>,
        head: Option<Head>,
        left_at: Moment,
        keep_until: Option<Moment>,
        keep_for: Option<Duration>,
    ) -> Departure {
        if let Some(head) = &head {
            head.held_no_more();
        }
        Departure {
            _under_way: core.life.background.enter(),
            over_at: hold.deadline(),
            core,
            hold,
            head,
            done: false,
            unanswered: false,
            in_background: false,
            left_at,
            keep_until,
            keep_for,
            unused: None,
        }
    }

    /// Ends the hold for a caller who wants to know how it went, within the call timeout. Cancel safe: what is not
    /// done by then goes on in the background.
    async fn explicit(mut self) -> Result<(), LockError> {
        current_runtime()?;
        if self.keep_until.is_some() {
            let (kept, until_kept) = oneshot::channel();
            self.in_background = true;
            let core = self.core.clone();
            core.life.spawn(self.in_background(Some(kept)));
            return match tokio::time::timeout(core.options.call_timeout, until_kept).await {
                Ok(Ok(outcome)) => outcome,
                // Gone without an answer if the runtime is: then the lease ends the hold. Without one in time, the
                // lease is being lengthened in the background.
                Ok(Err(_)) | Err(_) => Ok(()),
            };
        }
        if let Some(next) = self.next_holder() {
            // The successor's turn must not hang on this caller, who may be dropped: the manager owns the hand-over.
            let (done, outcome) = oneshot::channel();
            self.in_background = true;
            let core = self.core.clone();
            let error = self.unavailable("the runtime of the lock manager is gone");
            let timeout = core.options.call_timeout;
            let late = self.unconfirmed(timeout, "no answer to the hand-over");
            core.life.spawn(self.hand_over(next, done));
            return match tokio::time::timeout(timeout, outcome).await {
                Ok(outcome) => outcome.unwrap_or(Err(error)),
                Err(_) => Err(late),
            };
        }
        let timeout = self.core.options.call_timeout;
        let until = self.over_at.earlier(self.left_at + timeout);
        match self.release_until_answered(until).await {
            Ok(answer) => self.conclude(answer),
            Err(fault) if fault.is_passing() => Err(self.unconfirmed(timeout, &fault.to_string())),
            Err(fault) => self.refused(fault),
        }
    }

    /// Ends the hold with nobody waiting for the outcome.
    async fn in_background(mut self, kept: Option<Covered>) {
        if !self.keep(kept).await {
            self.is_done();
            return;
        }
        let (core, label) = (self.core.clone(), self.hold.label().lock);
        let outcome = match self.next_holder() {
            Some(next) => {
                let (done, outcome) = oneshot::channel();
                self.hand_over(next, done).await;
                outcome.await.unwrap_or(Ok(()))
            }
            None => self.give_back().await,
        };
        if let Err(error) = outcome {
            core.watch.release_failed(label, &error);
        }
    }

    /// Nothing is left to do at the store: the turn goes on.
    fn is_done(&mut self) {
        self.done = true;
        let keeps = self.keep_for.is_some() || self.hold.holder().keeps();
        if let Some(head) = self.head.take().filter(|_| keeps) {
            kept::turn_goes_on(&self.core, head, self.left_at);
        }
    }

    /// The waiter that has the lock next without asking for it.
    fn next_holder(&self) -> Option<NextHolder> {
        self.core.backend.hand_off()?;
        let head = self.head.as_ref()?;
        if let Some(successor) = head.successor() {
            return Some(NextHolder::Waiter(successor));
        }
        let keep_for = self.keep_for.filter(|_| self.core.life.is_open())?;
        // Those who wait although the budget is spent come after others.
        let may_keep = head.budget(|budget| budget.may_keep(self.left_at));
        let keeps = may_keep == Some(true) && head.waiters() == 0;
        keeps.then(|| NextHolder::nobody(&self.hold, keep_for))
    }

    /// Releases the lock in the store, until there is an answer or the lease is over.
    async fn give_back(&mut self) -> Result<(), LockError> {
        match self.release_until_answered(self.over_at).await {
            Ok(answer) => self.conclude(answer),
            Err(fault) => self.refused(fault),
        }
    }

    async fn release_until_answered(&mut self, until: Moment) -> Result<Released, Fault> {
        self.listen_before_pause();
        let mut hold_ref = self.hold.hold_ref();
        hold_ref.contended = self.is_contended();
        let unanswered = &mut self.unanswered;
        release_until_answered(
            &self.core,
            hold_ref,
            self.unused.as_ref(),
            until,
            unanswered,
        )
        .await
    }

    /// Lets the next head count the releases of others while it stands back. The message of this one is among those it
    /// hears.
    fn listen_before_pause(&self) {
        let (backend, key) = (&self.core.backend, self.hold.key());
        if let Some(head) = &self.head
            && head.budget(|budget| budget.stands_back()) == Some(true)
            && backend.hears(key)
        {
            head.bequeath(Legacy {
                place: None,
                listener: Some(backend.listen(key)),
            });
        }
    }

    /// Whether many processes may wait for the lock.
    fn is_contended(&self) -> bool {
        let core = &self.core;
        let suspects = self
            .head
            .as_ref()
            .and_then(|head| head.budget(|budget| budget.suspects_crowd(core.options.crowd_from)));
        let hold_ref = self.hold.hold_ref();
        let list = core.backend.waiting_list();
        suspects == Some(true)
            || list.is_some_and(|list| list.serves(hold_ref.key, hold_ref.holder))
    }

    fn conclude(&mut self, answer: Released) -> Result<(), LockError> {
        self.is_done();
        let outcome = match answer {
            Released::Done => Ok(()),
            // The first release may have done it, and its answer got lost on the way. It was sent while the hold
            // was good, so nobody else was admitted before it.
            Released::NotHeld if self.unanswered => Ok(()),
            Released::NotHeld => Err(self.hold.lost_error(LostReason::Refused, false)),
        };
        observe::released(&self.hold, &outcome);
        outcome
    }

    /// No answer will come, or the lease is over anyway.
    fn refused(&mut self, fault: Fault) -> Result<(), LockError> {
        self.is_done();
        let outcome = Err(fault.into_error(self.hold.key().name()));
        observe::released(&self.hold, &outcome);
        outcome
    }

    /// The call timeout is over; the release goes on.
    fn unconfirmed(&self, timeout: Duration, why: &str) -> LockError {
        self.unavailable(format!(
            "the release was not confirmed within {timeout:?} and is repeated in the background: {why}"
        ))
    }

    fn unavailable(&self, why: impl Into<String>) -> LockError {
        LockError::unavailable(self.hold.key().name(), why)
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.in_background {
            // A key that is to stay taken for a while stays so without the runtime.
            if self.keep_until.is_none_or(Moment::has_passed) {
                observe::release_cut_off(&self.hold);
            }
            return;
        }
        let rest = Departure {
            core: self.core.clone(),
            hold: self.hold.clone(),
            head: self.head.take(),
            done: false,
            unanswered: self.unanswered,
            in_background: true,
            _under_way: self.core.life.background.enter(),
            left_at: self.left_at,
            keep_until: self.keep_until,
            keep_for: self.keep_for,
            unused: self.unused,
            over_at: self.over_at,
        };
        let core = rest.core.clone();
        core.life.spawn(rest.in_background(None));
    }
}

/// Deletes what a hold that was lost, or never confirmed, may have left in the store.
pub(crate) async fn undo(core: &Core, hold_ref: HoldRef<'_>, until: Moment) {
    let mut unanswered = true;
    if let Err(fault @ Fault::Denied(_)) =
        release_until_answered(core, hold_ref, None, until, &mut unanswered).await
    {
        observe::undo_refused(hold_ref.key.name(), &fault);
    }
}

/// Sends releases until one is answered, the fault is permanent, or `until` has passed.
async fn release_until_answered(
    core: &Core,
    hold_ref: HoldRef<'_>,
    unused: Option<&UnusedTokens>,
    until: Moment,
    unanswered: &mut bool,
) -> Result<Released, Fault> {
    let mut pauses = pauses();
    let mut timeout = core.options.call_timeout;
    let mut last_fault = None;
    loop {
        // Set before the call: a caller who drops this future here does not know the answer either.
        let before = std::mem::replace(unanswered, true);
        let released = core.backend.release_with(hold_ref, unused, timeout);
        let fault = match released.await {
            Ok(released) => {
                *unanswered = before;
                return Ok(released);
            }
            Err(fault) => fault,
        };
        if fault.is_passing_no_op() {
            *unanswered = before;
        }
        if !fault.is_passing() || until.has_passed() {
            return Err(fault.at_the_end(last_fault));
        }
        last_fault = Some(fault);
        // A pause that outlasted the time would keep the caller waiting for longer than the call timeout.
        clock::sleep(pauses.pause().min(until.remaining())).await;
        timeout = timeout.min(until.remaining().max(LEAST_CALL));
    }
}
