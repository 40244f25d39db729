//! The end of a tenure: the lock is given back to the store, or handed over in the store to the next local waiter.
//!
//! The last guard leaves a [`TenureRelease`], and so does the end of an idle time. Invariants:
//! - The future that drives a release may be dropped at any time. The release then continues in the background.
//! - Each request names the holder, so a repeated request releases nothing of other holders.
//! - No turn begins under that holder any more: the release is made after the tenure has [ended](crate::hold::Next::Release).

mod cover;
pub(crate) mod downgrade;
pub(crate) mod hand_over;
pub(crate) mod idle;
pub(crate) mod place;
#[cfg(test)]
mod tests;

use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use self::cover::Covered;
use self::idle::AfterDrop;
use crate::backend::{Fault, HoldRef, Released, WithRelease};
use crate::hold::{
    Asking, Core, HoldHandle, IdleEnd, Left, Next, Offer, Tenure, Turn, current_runtime,
};
use crate::observe::{self, metrics};
use crate::queue::Front;
use crate::queue::slice::Others;
use crate::release::place::Place;
use crate::values::ttl::LEAST_CALL;
use crate::values::{Backoff, Counted, Key, LockError, LostReason, Moment, TokenRange, clock};

/// A release under way. Boxed, so that the future that waits for it stays small while the body runs.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

/// Where the failure of a release goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    ToCaller,
    /// The caller is told of a loss alone. Any other failure is logged: the lock was held to the end of the work, and a late
    /// release does not change that.
    ToLog,
}

impl Failure {
    /// Drives what remains to be done at the store. Logs its failure if that is for the log.
    fn drive(
        self,
        core: &Arc<Core>,
        label: &'static str,
        work: impl Future<Output = Result<(), LockError>> + Send + 'static,
    ) -> Ending {
        let log = (self == Failure::ToLog).then(|| core.clone());
        Box::pin(async move {
            match (work.await, log) {
                (Err(error), Some(core)) if !matches!(error, LockError::Lost { .. }) => {
                    core.watch.release_failed(label, &error);
                    Ok(())
                }
                (outcome, _) => outcome,
            }
        })
    }
}

impl HoldHandle {
    /// Ends the handle. The future may be dropped at any time; the release then continues in the background.
    pub(crate) fn release(mut self, failure: Failure) -> Ending {
        match self.end(Some(failure)) {
            // It has no size, so this box costs no allocation.
            Ok(None) => Box::pin(poll_fn(|_| Poll::Ready(Ok(())))),
            Ok(Some(ending)) => ending,
            Err(lost) => Box::pin(ready(Err(lost))),
        }
    }

    /// Leaves the turn. Returns what remains to be done at the store, for a caller that waits for it. Without a caller,
    /// `failure` is `None`, and all of it is done in the background.
    fn end(&mut self, failure: Option<Failure>) -> Result<Option<Ending>, LockError> {
        let Some((left, left_at, _counted)) = self.leave(failure.is_none()) else {
            return Ok(None);
        };
        let (core, tenure) = (self.core(), self.hold().tenure());
        let (turn, next) = match left {
            Left::Last(turn, next) => (turn, next),
            Left::Shared => return Ok(None),
            Left::Reading(front) => {
                let label = self.hold().label();
                let answer = downgrade::start(core, self.hold(), front);
                return Ok(failure.map(|failure| failure.drive(core, label, answer)));
            }
            Left::Lost { loss, last } => {
                let error = self.hold().lost_error(loss);
                if last {
                    clean_up(core, tenure, loss.reason);
                }
                return Err(error);
            }
        };
        let kind = tenure.first_kind();
        metrics::ended(turn.label, kind, left_at.since(turn.granted_at));
        match next {
            Next::Idle(end) => {
                if !matches!(end, IdleEnd::Planned) {
                    core.watch.ends_earlier(tenure);
                }
                if matches!(end, IdleEnd::Release) {
                    core.life.spawn(AfterDrop::new(core, tenure).run());
                }
                Ok(None)
            }
            Next::Turn(successor, hold) => {
                let options = successor.hold_options;
                metrics::held(options.label, kind);
                if options.max_hold.is_some() {
                    core.watch.ends_earlier(tenure);
                }
                hand_over::give(core, kind, successor, Offer::new(core, hold));
                Ok(None)
            }
            Next::Release => {
                // Before the release is sent: nothing renews what is being given back.
                core.watch.remove(tenure);
                let label = turn.label.lock;
                let release = TenureRelease::new(core, tenure.clone(), turn, left_at);
                // Without a caller, it is dropped here, and continues in the background.
                let ending = failure.map(|failure| failure.drive(core, label, release.explicit()));
                Ok(ending)
            }
        }
    }
}

impl Drop for HoldHandle {
    fn drop(&mut self) {
        // `lost()` has reported an error already.
        drop(self.end(None));
    }
}

/// Deletes a lost tenure that may still be in the store. The last guard is gone, so other holders need not wait for the end
/// of its lease.
pub(crate) fn clean_up(core: &Arc<Core>, tenure: &Arc<Tenure>, reason: LostReason) {
    if core.ids.are_left_to_copies(tenure.holder()) {
        return;
    }
    // The answer of a single store is final. A forced release is not: it may have ended only the reservation that a request
    // under way then took as the same holder.
    if reason == LostReason::Refused && !core.backend.traits().divided {
        return;
    }
    let (hold_ref, until) = (tenure.hold_ref(), tenure.leased_until());
    undo_later(core, tenure.key(), hold_ref, until);
}

/// The pauses between two requests that end a hold, while none is answered.
pub(crate) fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
}

/// Waits for the outcome of work that a task of the manager does, within the call timeout. The work continues after that;
/// `late` says so.
async fn told_within(
    timeout: Duration,
    outcome: oneshot::Receiver<Result<(), LockError>>,
    key: &Key,
    late: impl FnOnce() -> String,
) -> Result<(), LockError> {
    let why = match tokio::time::timeout(timeout, outcome).await {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(_)) => "the runtime of the lock manager is gone".to_owned(),
        Err(_) => late(),
    };
    Err(LockError::unavailable(key.name(), why))
}

/// Says that a release is not answered within the call timeout, and continues.
fn unconfirmed(timeout: Duration, why: &str) -> String {
    format!(
        "the release was not confirmed within {timeout:?} and is repeated in the background: {why}"
    )
}

/// The release of a tenure that is over. If it is dropped before it is done, it continues in a task of the manager's runtime.
#[derive(Debug)]
struct TenureRelease {
    /// `None` once nothing is left to do at the store.
    work: Option<Work>,
    /// Whether a task of the manager's runtime drives it. If that task is dropped, the runtime is gone, and the lease ends the
    /// tenure.
    in_task: bool,
}

/// What a release takes along when it continues in a task.
#[derive(Debug)]
struct Work {
    core: Arc<Core>,
    tenure: Arc<Tenure>,
    /// The turn that ended last, with this process's front at the key, where turns own it.
    turn: Turn,
    left_at: Moment,
    requests: Requests,
    /// Whether the store has said that it keeps the key for `min_hold`.
    is_covered: bool,
    /// A shutdown waits for it, also if a caller drives the release.
    _under_way: Counted,
}

/// The requests of a release, which are repeated until one is answered.
#[derive(Debug, Default)]
struct Requests {
    /// The unused tokens that go back with the lock.
    unused: Option<TokenRange>,
    /// The place of the next local caller on the store's list, after the release has put its holder there.
    place: Option<Box<Place>>,
    /// Whether one was sent and not answered: it may be the cause of a later "not held".
    unanswered: bool,
}

impl TenureRelease {
    fn new(core: &Arc<Core>, tenure: Arc<Tenure>, turn: Turn, left_at: Moment) -> TenureRelease {
        let unused = tenure.unused_tokens();
        let work = Work {
            _under_way: core.life.background.enter(),
            core: core.clone(),
            tenure,
            turn,
            left_at,
            requests: Requests {
                unused,
                ..Requests::default()
            },
            is_covered: false,
        };
        TenureRelease {
            work: Some(work),
            in_task: false,
        }
    }

    /// Releases for a caller that waits for the outcome, within the call timeout. Cancel safe: a release that is not done by
    /// then continues in the background.
    async fn explicit(mut self) -> Result<(), LockError> {
        current_runtime()?;
        let Some(work) = &mut self.work else {
            return Ok(());
        };
        let timeout = work.core.options.call_timeout;
        if work.covered_until().is_some() {
            let (told, covered) = oneshot::channel();
            let key = work.tenure.key().clone();
            self.spawn(Some(told));
            let late = || {
                format!(
                    "the store did not confirm within {timeout:?} that it keeps the key for `min_hold`; it is asked again \
                     until the lease is over"
                )
            };
            return told_within(timeout, covered, &key, late).await;
        }
        if let Some(next) = work.next(false) {
            // The caller may be dropped, and the successor must not depend on it: the manager owns the hand-over.
            let (told, outcome) = oneshot::channel();
            let (core, key) = (work.core.clone(), work.tenure.key().clone());
            self.in_task = true;
            core.life.spawn(async move {
                let _ = told.send(self.hand_over(next).await);
            });
            let late = || unconfirmed(timeout, "no answer to the hand-over");
            return told_within(timeout, outcome, &key, late).await;
        }
        let until = work.tenure.leased_until().earlier(work.left_at + timeout);
        match work.release_until_answered(until).await {
            Err(fault) if fault.is_passing() => {
                let why = unconfirmed(timeout, &fault.to_string());
                Err(LockError::unavailable(work.tenure.key().name(), why))
            }
            answer => self.conclude(answer),
        }
    }

    /// Continues in a task of the manager's runtime. `covered` gets a message once the store keeps the key for long enough.
    fn spawn(mut self, covered: Option<Covered>) {
        if let Some(work) = &self.work {
            let core = work.core.clone();
            self.in_task = true;
            core.life.spawn(self.in_background(covered));
        }
    }

    /// Releases for no caller.
    async fn in_background(mut self, covered: Option<Covered>) {
        let Some(work) = &mut self.work else {
            return;
        };
        let (core, label) = (work.core.clone(), work.turn.label.lock);
        let is_dropped = covered.is_none() && work.covered_until().is_none();
        if !work.stay_covered(covered).await {
            self.done();
            return;
        }
        let outcome = match work.next(is_dropped) {
            Some(next) => self.hand_over(next).await,
            None => self.give_back().await,
        };
        if let Err(error) = outcome {
            core.watch.release_failed(label, &error);
        }
    }

    /// Releases the lock in the store, until there is an answer or the lease is over.
    async fn give_back(&mut self) -> Result<(), LockError> {
        let Some(work) = &mut self.work else {
            return Ok(());
        };
        let until = work.tenure.leased_until();
        let answer = work.release_until_answered(until).await;
        self.conclude(answer)
    }

    /// Ends the work at the store, and passes the front on.
    fn done(&mut self) -> Option<Work> {
        let mut work = self.work.take()?;
        if let Some(front) = work.turn.front.take() {
            work.pass_on(front);
        }
        Some(work)
    }

    /// Concludes the release with the store's last answer, or with the fault in its place.
    fn conclude(&mut self, answer: Result<Released, Fault>) -> Result<(), LockError> {
        let Some(work) = self.done() else {
            return Ok(());
        };
        let (tenure, turn) = (&work.tenure, &work.turn);
        let outcome = match answer {
            Ok(Released::Done | Released::DoneAndListed) => Ok(()),
            // An earlier release may have done it, and its answer was lost. It was sent while the tenure was good, so the
            // store admitted no other holder before it.
            Ok(Released::NotHeld) if work.requests.unanswered || tenure.is_undone() => Ok(()),
            // The caller's work ended in time, and the store answered only when the lease was over there, too.
            Ok(Released::NotHeld) if (tenure.deadline() + turn.ttl.margin()).has_passed() => {
                let why = "the lease was over before the store answered the release";
                Err(LockError::unavailable(tenure.key().name(), why))
            }
            Ok(Released::NotHeld) => Err(work.lost_error()),
            Err(fault) => Err(fault.into_error(tenure.key().name())),
        };
        observe::released(tenure.key(), turn.label, &outcome);
        outcome
    }
}

impl Work {
    /// Returns the time until which the key stays taken, if it does (`min_hold`).
    fn covered_until(&self) -> Option<Moment> {
        self.turn.covered_until(self.left_at)
    }

    async fn release_until_answered(&mut self, until: Moment) -> Result<Released, Fault> {
        self.requests.place = self.next_place();
        let (hold_ref, front) = (self.tenure.hold_ref(), &mut self.turn.front);
        let requests = &mut self.requests;
        requests.repeat(&self.core, hold_ref, front, until).await
    }

    /// Returns a place for the next caller of this process, if it takes turns with others by the store's list: then one
    /// request releases the lock and puts the caller on the list.
    fn next_place(&self) -> Option<Box<Place>> {
        let (core, tenure) = (&self.core, &self.tenure);
        let (key, front) = (tenure.key(), self.turn.front.as_ref()?);
        let list = core.backend.waiting_list(key)?;
        // The shard of the queue is locked only where others take turns.
        if !list.hears(key, tenure.holder()) || self.keeps() || front.waiters() == 0 {
            return None;
        }
        let holder = core.ids.fresh();
        let listener = list.listen(key, holder);
        // The subscription may have ended just now.
        list.hears(key, holder).then(|| {
            let mut place = Place::new(core, key, holder, tenure.ttl());
            place.listener = Some(listener);
            Box::new(place)
        })
    }

    /// Returns `true` if this process keeps the lock between its holds.
    fn keeps(&self) -> bool {
        self.turn.keep_for.is_some() || self.tenure.holder().keeps()
    }

    /// Passes the front on, after a rest if other processes are to ask first.
    fn pass_on(&mut self, front: Front) {
        let (backend, key) = (&self.core.backend, front.key());
        let keeps = self.keeps();
        let wanted_by = backend.wanted_by(key);
        if self.turn.nobody_waits && !keeps && wanted_by == 0 && self.requests.place.is_none() {
            return;
        }
        let others = if self.core.takes_turns(key, self.tenure.holder()) {
            Others::InTurns
        } else {
            Others::Seen(wanted_by)
        };
        let now = clock::now();
        let held_for = now - self.turn.granted_at;
        let notice_time = backend.notice_time(key, held_for);
        let rest = front.slice(|slice| slice.rest(others, held_for, notice_time, now));
        if let Some(place) = self.requests.place.take() {
            // The others come first by the list.
            front.leave_place(place);
        } else if let Some(rest) = rest.flatten() {
            // After `keep_for`, the rest is also for clients that only try now and then, so no local request ends it.
            if !keeps {
                front.rests(now + rest);
            }
            // A shutdown does not wait for it.
            self.core.life.spawn_uncounted(async move {
                // Without a runtime there are no timers, and no caller waits.
                if current_runtime().is_ok() {
                    clock::sleep(rest).await;
                }
                drop(front);
            });
        }
    }

    /// Returns the error of a release whose holder the store does not know.
    fn lost_error(&self) -> LockError {
        LockError::Lost {
            name: self.tenure.key().name().to_owned(),
            held_for: self.turn.granted_at.elapsed(),
            reason: LostReason::Refused,
            completed: false,
        }
    }
}

impl Drop for TenureRelease {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        if self.in_task {
            // A key that the store keeps (`min_hold`) stays taken without the runtime.
            if !work.is_covered || work.covered_until().is_none_or(Moment::has_passed) {
                let left = work.tenure.deadline().remaining();
                observe::release_cut_off(work.tenure.key(), work.turn.label, left);
            }
            return;
        }
        let rest = TenureRelease {
            work: Some(work),
            in_task: true,
        };
        rest.spawn(None);
    }
}

impl Requests {
    /// Sends releases until one is answered, the fault is permanent, or `until` has passed. The first of them puts the holder
    /// of `place` on the store's list, if others come first. Otherwise the place is gone afterwards. While the store refuses,
    /// `front` goes to the next caller of this process: it is refused by the store itself.
    async fn repeat(
        &mut self,
        core: &Core,
        hold_ref: HoldRef<'_>,
        front: &mut Option<Front>,
        until: Moment,
    ) -> Result<Released, Fault> {
        let mut pauses = pauses();
        let mut timeout = core.options.call_timeout;
        let mut last_fault = None;
        loop {
            // It is set before the call, because a caller that drops this future here gets no answer either.
            let before = std::mem::replace(&mut self.unanswered, true);
            let unused = self.unused.as_ref();
            let next = self.place.as_ref().map(|place| &place.holder);
            let with = WithRelease { unused, next };
            let released = core.backend.release_with(hold_ref, with, timeout).await;
            let asking = Asking::Release(hold_ref.key.kind());
            let fault = match core.served.judge(asking, released) {
                Ok(released) => {
                    self.unanswered = before;
                    if released != Released::DoneAndListed
                        && let Some(place) = self.place.take()
                    {
                        place.off_list();
                    }
                    return Ok(released);
                }
                Err(fault) => fault,
            };
            if fault.is_passing_refusal() {
                let name = hold_ref.key.name();
                core.served.log_refusal(asking, name, &fault);
                drop(front.take());
            }
            let place = self.place.take();
            if fault.is_passing_no_op() {
                self.unanswered = before;
                if let Some(place) = place {
                    place.off_list();
                }
            }
            if !fault.is_passing() || until.has_passed() {
                return Err(fault.at_the_end(last_fault));
            }
            last_fault = Some(fault);
            // The caller must not wait for longer than the call timeout.
            clock::sleep(pauses.pause().min(until.remaining())).await;
            timeout = timeout.min(until.remaining().max(LEAST_CALL));
        }
    }
}

/// Deletes what a lost or unconfirmed hold may have left in the store.
pub(crate) async fn undo(core: &Core, hold_ref: HoldRef<'_>, until: Moment) {
    let mut requests = Requests {
        unanswered: true,
        ..Requests::default()
    };
    let released = requests.repeat(core, hold_ref, &mut None, until).await;
    if let Err(fault @ (Fault::Denied(_) | Fault::Refused(_))) = released {
        core.watch.undo_refused(hold_ref.key.name(), &fault);
    }
}

/// Does the same as [`undo`], in the background. A shutdown waits for it. `key`: that of `hold_ref`.
pub(crate) fn undo_later(core: &Arc<Core>, key: &Arc<Key>, hold_ref: HoldRef<'_>, until: Moment) {
    let (of, key) = (core.clone(), key.clone());
    core.life.spawn(async move {
        // The task has the numbers of `hold_ref`, and a key of its own.
        let hold_ref = HoldRef {
            key: &key,
            ..hold_ref
        };
        undo(&of, hold_ref, until).await;
    });
}
