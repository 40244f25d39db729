//! The end of a hold: given back to the store, or handed over to the next local waiter.
//!
//! A [`Departure`] is what the last guard leaves behind. Whoever drives it may be dropped at any time: it then goes
//! on in the background. All requests name the holder, so a repeated one can hurt nobody.

mod keep;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use self::keep::Kept;
use crate::backend::{Fault, HandedOver, Released, Stake};
use crate::backoff::Backoff;
use crate::clock::{self, Moment};
use crate::core::Core;
use crate::downgrade::Downgrade;
use crate::error::{LockError, LostReason, StoreError};
use crate::gate::{Heir, Place, Turn};
use crate::hold::{Hold, Left};
use crate::key::Key;
use crate::kind::Kind;
use crate::lifecycle::{Counted, current_runtime};
use crate::observe;
use crate::options::Terms;
use crate::order::LEAST_CALL;
use crate::share::Share;

/// A release under way. Boxed, so that what waits for it stays small while the body runs.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

impl Share {
    /// Ends the share. The future may be dropped at any time; the release goes on in the background.
    pub(crate) fn release(mut self) -> Ending {
        match self.end() {
            Ok(None) => Box::pin(std::future::ready(Ok(()))),
            Ok(Some(Next::Depart(departure))) => Box::pin(departure.explicit()),
            Ok(Some(Next::Downgrade(downgrade))) => Box::pin(downgrade.explicit()),
            Err(lost) => Box::pin(std::future::ready(Err(lost))),
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
            Left::Reading(place) => Ok(Some(Next::Downgrade(Downgrade::new(core, hold, place)))),
            Left::Good {
                place,
                left_at,
                keep_until,
            } => {
                let departure = Departure::new(core, hold, place, left_at);
                Ok(Some(Next::Depart(departure.not_before(keep_until))))
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

impl Drop for Share {
    fn drop(&mut self) {
        match self.end() {
            Ok(Some(Next::Downgrade(downgrade))) => downgrade.in_background(),
            // A departure that is dropped goes on in the background. An error was told to whoever watches for loss.
            other => drop(other),
        }
    }
}

/// What is to be done at the store when a share has left its hold.
enum Next {
    Depart(Departure),
    Downgrade(Downgrade),
}

/// A lost hold may still stand in the store under its id. Now that nobody acts on it any more, others need not wait
/// for its lease to run out.
fn clean_up(core: Arc<Core>, hold: Arc<Hold>, reason: LostReason) {
    // What one store has said is so.
    let is_gone = matches!(reason, LostReason::Refused | LostReason::ForceReleased);
    if is_gone && !core.backend.is_divided() {
        return;
    }
    core.clone().life.spawn(async move {
        let until = clock::now() + hold.term().ttl();
        undo(&core, hold.stake(), until).await;
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
    place: Option<Place>,
    /// Nothing is left to do at the store.
    settled: bool,
    /// A release was sent and not answered: "not held" may then be our own doing.
    unanswered: bool,
    /// A task of the manager's runtime drives it. If even that is dropped, the runtime is gone, and the lease ends
    /// the hold.
    in_background: bool,
    /// Keeps a shutdown waiting, whoever drives the departure: a caller's release is not cut off half-way.
    _under_way: Counted,
    left_at: Moment,
    /// Until when the key stays taken.
    keep_until: Option<Moment>,
    /// When the store's lease is over at the latest: until then a release without an answer is repeated.
    over_at: Moment,
}

impl Departure {
    fn new(core: Arc<Core>, hold: Arc<Hold>, place: Option<Place>, left_at: Moment) -> Departure {
        if let Some(place) = &place {
            place.held_no_more();
        }
        Departure {
            _under_way: core.life.background.enter(),
            over_at: hold.deadline(),
            core,
            hold,
            place,
            settled: false,
            unanswered: false,
            in_background: false,
            left_at,
            keep_until: None,
        }
    }

    /// Leaves the key taken until then.
    fn not_before(mut self, keep_until: Option<Moment>) -> Departure {
        self.keep_until = keep_until.filter(|until| !until.has_passed());
        self
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
        if let Some(heir) = self.heir() {
            // The heir's turn must not hang on this caller, who may be dropped: the manager owns the hand-over.
            let (done, outcome) = oneshot::channel();
            self.in_background = true;
            let core = self.core.clone();
            let error =
                self.unavailable(StoreError::new("the runtime of the lock manager is gone"));
            let timeout = core.options.call_timeout;
            let late = self.unconfirmed(timeout, "no answer to the hand-over");
            core.life.spawn(self.hand_over(heir, done));
            return match tokio::time::timeout(timeout, outcome).await {
                Ok(outcome) => outcome.unwrap_or(Err(error)),
                Err(_) => Err(late),
            };
        }
        let timeout = self.core.options.call_timeout;
        let until = self.over_at.earlier(self.left_at + timeout);
        match self.settle(until).await {
            Ok(answer) => self.conclude(answer),
            Err(fault) if fault.is_passing() => Err(self.unconfirmed(timeout, &fault.to_string())),
            Err(fault) => self.refused(fault),
        }
    }

    /// Ends the hold with nobody waiting for the outcome.
    async fn in_background(mut self, kept: Option<Kept>) {
        if !self.keep(kept).await {
            self.is_settled();
            return;
        }
        let (core, label) = (self.core.clone(), self.hold.label());
        let outcome = match self.heir() {
            Some(heir) => {
                let (done, outcome) = oneshot::channel();
                self.hand_over(heir, done).await;
                outcome.await.unwrap_or(Ok(()))
            }
            None => self.give_back().await,
        };
        if let Err(error) = outcome {
            core.watch.release_failed(label, &error);
        }
    }

    /// Nothing is left to do at the store: the turn goes on.
    fn is_settled(&mut self) {
        self.settled = true;
        self.place = None;
    }

    fn heir(&self) -> Option<Heir> {
        self.place.as_ref().and_then(Place::heir)
    }

    /// Releases the lock in the store, until there is an answer or the lease is over.
    async fn give_back(&mut self) -> Result<(), LockError> {
        match self.settle(self.over_at).await {
            Ok(answer) => self.conclude(answer),
            Err(fault) => self.refused(fault),
        }
    }

    async fn settle(&mut self, until: Moment) -> Result<Released, Fault> {
        settle(&self.core, self.hold.stake(), until, &mut self.unanswered).await
    }

    fn conclude(&mut self, answer: Released) -> Result<(), LockError> {
        self.is_settled();
        match answer {
            Released::Done => Ok(()),
            // The first release may have done it, and its answer got lost on the way. It was sent while the hold
            // was good, so nobody else was admitted before it.
            Released::NotHeld if self.unanswered => Ok(()),
            Released::NotHeld => Err(self.hold.lost_error(LostReason::Refused, false)),
        }
    }

    /// No answer will come, or the lease is over anyway.
    fn refused(&mut self, fault: Fault) -> Result<(), LockError> {
        self.is_settled();
        Err(fault.into_error(self.hold.key().name()))
    }

    /// Makes the heir the holder, in one round trip. Always runs to its end; `done` is told before the last of the
    /// cleaning up, which can take as long as the heir's lease.
    async fn hand_over(mut self, heir: Heir, done: oneshot::Sender<Result<(), LockError>>) {
        let Some(place) = self.place.take() else {
            return;
        };
        let core = self.core.clone();
        let key = place.key().clone();
        let (from, to) = (self.hold.holder(), core.ids.fresh());
        let lease = heir.terms.term.ttl();
        let claim = core.claim(&key, to, &heir.terms, clock::now());
        let stake = claim.stake;
        let fault = match core.backend.hand_over(from, claim).await {
            Ok(HandedOver::Done { granted, strangers }) => {
                let strangers = strangers.map(|others| others + readers_of(&core, &key));
                place.pace(|pace| pace.handed_over(strangers));
                observe::handed_over(heir.terms.label);
                self.settled = true;
                let terms = Terms {
                    renewed: false,
                    ..heir.terms
                };
                let share = Share::admit(&core, &key, Some(place), to, terms, granted);
                if core.life.is_open() {
                    heir.give(Turn::Held(share.unclaimed()));
                }
                // Else both are dropped: the heir is told that the manager closes, and the lock is given back.
                let _ = done.send(Ok(()));
                return;
            }
            Ok(HandedOver::NotHeld) => {
                heir.give(Turn::Head(place));
                let _ = done.send(self.conclude(Released::NotHeld));
                return;
            }
            // The old holder has released; what was granted to the new one is given back by the backend.
            Err(Fault::TooFew(source)) => {
                place.heard_from_store(Some(&source));
                self.settled = true;
                heir.give(Turn::Head(place));
                let _ = done.send(Ok(()));
                return;
            }
            Err(fault) => fault,
        };
        let unknown = matches!(fault, Fault::Unknown(_));
        heir.give(Turn::Head(place));
        self.unanswered |= unknown;
        // First the old holder, then the new one: whichever of them the store has by the time, and however late the
        // lost request arrives, neither is left behind.
        let outcome = self.give_back().await;
        let _ = done.send(outcome);
        if unknown {
            undo(&core, stake, clock::now() + lease).await;
        }
    }

    /// The call timeout is over; the release goes on.
    fn unconfirmed(&self, timeout: Duration, why: &str) -> LockError {
        self.unavailable(StoreError::new(format!(
            "the release was not confirmed within {timeout:?} and is repeated in the background: {why}"
        )))
    }

    fn unavailable(&self, source: StoreError) -> LockError {
        LockError::Unavailable {
            name: self.hold.key().name().to_owned(),
            source,
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if self.in_background || self.settled {
            return;
        }
        let rest = Departure {
            core: self.core.clone(),
            hold: self.hold.clone(),
            place: self.place.take(),
            settled: false,
            unanswered: self.unanswered,
            in_background: true,
            _under_way: self.core.life.background.enter(),
            left_at: self.left_at,
            keep_until: self.keep_until,
            over_at: self.over_at,
        };
        let core = rest.core.clone();
        core.life.spawn(rest.in_background(None));
    }
}

/// One if readers of this process wait beside the writers: they are in another queue, and no less strangers there.
fn readers_of(core: &Core, key: &Key) -> u64 {
    u64::from(key.kind() == Kind::Write && core.gates.is_open(&key.as_kind(Kind::Read)))
}

/// Deletes what a hold that was lost, or never confirmed, may have left in the store.
pub(crate) async fn undo(core: &Core, stake: Stake<'_>, until: Moment) {
    let mut unanswered = true;
    if let Err(fault @ Fault::Denied(_)) = settle(core, stake, until, &mut unanswered).await {
        observe::undo_refused(stake.key.name(), &fault);
    }
}

/// Sends releases until one is answered, the fault is permanent, or `until` has passed.
async fn settle(
    core: &Core,
    stake: Stake<'_>,
    until: Moment,
    unanswered: &mut bool,
) -> Result<Released, Fault> {
    let mut pauses = pauses();
    let mut timeout = core.options.call_timeout;
    loop {
        // Set before the call: whoever drops this future here does not know the answer either.
        let before = std::mem::replace(unanswered, true);
        let fault = match core.backend.release(stake, timeout).await {
            Ok(released) => {
                *unanswered = before;
                return Ok(released);
            }
            Err(fault) => fault,
        };
        if matches!(fault, Fault::NotDone(_)) {
            *unanswered = before;
        }
        if !fault.is_passing() || until.has_passed() {
            return Err(fault);
        }
        clock::sleep(pauses.pause()).await;
        timeout = timeout.min(until.remaining().max(LEAST_CALL));
    }
}
