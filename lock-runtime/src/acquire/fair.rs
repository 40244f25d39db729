//! The wait for a fair lock. Each waiter has a place of its own in the store's queue, under one holder id, and keeps the place
//! by further requests. Deadlines, faults and pauses are those of any other wait.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::Deadline;
use crate::acquire::contend::{Asked, Contender, ask_once, contend, nap};
use crate::backend::{AcquireRequest, Acquired, Both, Fault, Granted, HoldRef, Listen, QUEUE_LIFE};
use crate::hold::{Core, HoldHandle};
use crate::queue::Waiting;
use crate::release::undo;
use crate::values::{Counted, HolderId, Key, LockError, Moment, clock};

/// The longest pause, with some chance, between two requests of a waiter with others before it: the store deletes places that
/// are silent for longer.
const HEARTBEAT: Duration = Duration::from_millis(1_600);
/// The least pause between two requests of the first waiter without a message. The answer may be that nothing is left of a
/// lease, although the store still has it.
const SHORTEST_NAP: Duration = Duration::from_millis(50);
/// By its own clock, the server may accept a request this much later than the call timeout.
const SLACK: Duration = Duration::from_secs(1);

/// Acquires with a place in the store's queue.
pub(crate) async fn acquire(attempt: &Attempt, now: Moment) -> Result<HoldHandle, LockError> {
    let waiting = attempt.core.queues.join_store_queue(attempt.key())?;
    let mut seat = FairSeat::new(attempt, Some(waiting));
    let first = seat.ask(now, attempt.deadline).await;
    contend(&mut seat, first, None).await
}

/// Asks the store once. The lock is busy if other callers of this process wait for it.
pub(crate) async fn try_acquire(attempt: &Attempt) -> Result<Asked<HoldHandle>, LockError> {
    if !attempt.core.queues.store_queue_is_empty(attempt.key()) {
        return Ok(Asked::busy(None));
    }
    let mut seat = FairSeat::new(attempt, None);
    ask_once(&mut seat, attempt.deadline.since).await
}

/// A caller that asks for a fair lock, with its place and its holder id at the store.
struct FairSeat<'a> {
    attempt: &'a Attempt,
    /// The id of the place.
    place: HolderId,
    /// The id of the future hold: that of the place, until it is outdated.
    holder: HolderId,
    first: bool,
    /// Whether a process keeps the lock between its holds. It gives the lock back as for other kinds of locks.
    kept: bool,
    /// Whether the store may have a place in the queue, or the lock, for this holder.
    known: bool,
    /// The time until which an unanswered request may still arrive. It is set while a request is under way, because a caller
    /// that drops the request gets no answer either.
    loose_until: Option<Moment>,
    /// The local count of waiting callers.
    waiting: Option<Waiting>,
    /// A shutdown waits for it until the place is given back.
    _leaving: Counted,
}

impl<'a> FairSeat<'a> {
    fn new(attempt: &'a Attempt, waiting: Option<Waiting>) -> FairSeat<'a> {
        let place = attempt.core.ids.fresh();
        FairSeat {
            attempt,
            place,
            holder: place,
            first: false,
            kept: false,
            known: false,
            loose_until: None,
            waiting,
            _leaving: attempt.core.life.background.enter(),
        }
    }

    fn admit(&mut self, granted: Granted) -> Asked<HoldHandle> {
        self.known = false;
        self.waiting = None;
        let handle = self.attempt.admit(None, self.holder, granted, None);
        self.watch_for_strays(&handle);
        Asked::Granted(handle)
    }

    /// Returns the data for undoing, in the background, the place and the lock that the store may have for this seat.
    fn undoing(&self) -> Undoing {
        let Attempt { core, request, .. } = self.attempt;
        let ttl = request.hold_options.ttl;
        Undoing {
            core: core.clone(),
            key: request.key.clone(),
            place: self.place,
            holder: self.holder,
            lease: ttl.duration().max(QUEUE_LIFE),
        }
    }

    /// Replaces the outdated id of the future hold. An unanswered request may have got the lock for the old id. A grant to the
    /// place goes to the next holder.
    fn becomes_another(&mut self) {
        let undoing = self.undoing();
        self.holder = undoing.core.ids.fresh();
        let life = &self.attempt.core.life;
        life.spawn(async move { undoing.undo_hold().await });
    }

    /// Guards against an unanswered request that arrives after the hold of a later request has ended. It would take the lock
    /// for no caller.
    fn watch_for_strays(&self, handle: &HoldHandle) {
        let Some(ends) = self.loose_ends() else {
            return;
        };
        let undoing = self.undoing();
        let tenure = Arc::downgrade(handle.hold().tenure());
        self.attempt.core.life.spawn_uncounted(async move {
            for until in ends {
                let _undoing = undoing.settled(until).await;
                // The store does not accept the request any more. A hold that is good, or whose key stays taken, is given
                // back later than this.
                if tenure.upgrade().is_none_or(|tenure| tenure.undoes()) {
                    undoing.undo().await;
                }
            }
        });
    }

    /// Returns the times after which the server accepts no unanswered request any more: as a rule, and for certain. The estimate
    /// of the server's time is late by as much as the last answer was, at most a call timeout.
    fn loose_ends(&self) -> Option<[Moment; 2]> {
        let slack = SLACK + self.attempt.core.options.call_timeout;
        self.loose_until.map(|until| [until, until + slack])
    }
}

impl Contender for FairSeat<'_> {
    type Granted = HoldHandle;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment, deadline: Deadline) -> Asked<HoldHandle> {
        let Attempt { core, .. } = self.attempt;
        let place = self.place;
        let mut call = AcquireRequest {
            place: self.known.then_some(&place),
            ..self.attempt.call(self.holder, now, deadline)
        };
        let arrives_until = now + call.timeout;
        let loose = self.loose_until;
        self.loose_until = Some(loose.map_or(arrives_until, |until| until.later(arrives_until)));
        let (_asking, answer) = self.attempt.ask(&mut call, loose.is_some()).await;
        self.holder = call.hold_ref.holder;
        if !self.known {
            self.place = self.holder;
        }
        if !matches!(answer, Err(Fault::Unknown(_))) {
            self.loose_until = loose;
        }
        match answer {
            Ok(Acquired::Granted(granted, _)) => self.admit(granted),
            Ok(Acquired::Busy { left, kept, first }) => {
                if let Some(first) = first {
                    core.presence.note_wanted();
                    (self.known, self.first) = (true, first);
                }
                self.kept |= kept;
                Asked::Busy { left, kept }
            }
            Err(fault) => {
                if matches!(fault, Fault::TooFew(_)) {
                    // The request that gives it back may be repeated, and must not undo the next grant.
                    let waiting = self.waiting.take();
                    *self = FairSeat::new(self.attempt, waiting);
                }
                if matches!(fault, Fault::Unknown(_)) {
                    self.known = true;
                }
                if matches!(fault, Fault::Outdated) {
                    self.becomes_another();
                }
                Asked::Failed(fault)
            }
        }
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        let Attempt { core, request, .. } = self.attempt;
        let (backend, key) = (&core.backend, &request.key);
        let alone = backend.listen_alone(key, self.place);
        if self.kept {
            Box::new(Both(alone, backend.listen(key)))
        } else {
            alone
        }
    }

    fn asks_last(&self) -> bool {
        self.known
    }

    fn nap(&self, left: Option<Duration>) -> Duration {
        if self.first {
            nap(&self.attempt.core.options, left).max(SHORTEST_NAP)
        } else {
            HEARTBEAT.mul_f64(0.8 + fastrand::f64() * 0.2)
        }
    }
}

impl Drop for FairSeat<'_> {
    /// Leaves the queue in the background. If that fails, the store soon deletes the place.
    fn drop(&mut self) {
        if !self.known {
            return;
        }
        let undoing = self.undoing();
        let ends = self.loose_ends();
        let life = &self.attempt.core.life;
        let counted = life.background.enter();
        life.spawn_uncounted(async move {
            undoing.undo().await;
            drop(counted);
            for until in ends.into_iter().flatten() {
                let _undoing = undoing.settled(until).await;
                undoing.undo().await;
            }
        });
    }
}

/// The data of a seat that the store may still have.
struct Undoing {
    core: Arc<Core>,
    key: Arc<Key>,
    place: HolderId,
    holder: HolderId,
    lease: Duration,
}

impl Undoing {
    /// Waits until the store refuses every request that it has not answered, or until the manager closes. The count that it
    /// returns is for what follows: a shutdown waits for the undoing, and not for this timer.
    async fn settled(&self, until: Moment) -> Counted {
        tokio::select! {
            () = clock::sleep_until(until) => {}
            () = self.core.life.closing() => {}
        }
        self.core.life.background.enter()
    }

    async fn undo(&self) {
        self.undo_of(self.place).await;
        self.undo_hold().await;
    }

    /// Undoes a grant beside the place.
    async fn undo_hold(&self) {
        if self.holder != self.place {
            self.undo_of(self.holder).await;
        }
    }

    async fn undo_of(&self, holder: HolderId) {
        let until = clock::now() + self.lease;
        undo(&self.core, HoldRef::one(&self.key, holder), until).await;
    }
}

#[cfg(test)]
mod tests;
