//! Waiting for a fair lock: every waiter has a place of its own in the store's queue, under one holder id, and keeps
//! it by asking again. Deadlines, faults and pauses are those of any other wait.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::attempt::{Asker, Attempt};
use crate::acquire::contend::{Asked, Contender, contend, nap, unless_kept};
use crate::backend::{Acquired, Both, Fault, Granted, HoldRef, Listen, QUEUE_LIFE};
use crate::hold::{Core, HoldHandle};
use crate::queue::Waiting;
use crate::release::undo;
use crate::values::{Counted, HolderId, Key, LockError, Moment, clock};

/// A waiter with others before it asks this often at the latest, give or take, or its place would be taken for deserted.
const HEARTBEAT: Duration = Duration::from_millis(1_600);
/// The first in the queue may be told that nothing is left of a lease which the store still keeps. It never asks
/// more often than this without being woken.
const SHORTEST_NAP: Duration = Duration::from_millis(50);
/// The server may take a question later than we think: by this much of its own clock, beyond the call timeout.
const SLACK: Duration = Duration::from_secs(1);

/// Acquires with a place in the store's queue.
pub(crate) async fn acquire(attempt: &Attempt, now: Moment) -> Result<HoldHandle, LockError> {
    let waiting = attempt.core.queues.join_store_queue(attempt.key())?;
    let mut seat = FairSeat::new(attempt, Some(waiting));
    let first = seat.ask(now).await;
    contend(&mut seat, first).await
}

/// Asks the store once. `None` if others of this process wait for the lock.
pub(crate) async fn try_acquire(attempt: &Attempt) -> Result<Option<Asked<HoldHandle>>, LockError> {
    if !attempt.core.queues.store_queue_is_empty(attempt.key()) {
        return Ok(None);
    }
    let mut seat = FairSeat::new(attempt, None);
    let first = seat.ask(attempt.deadline.since).await;
    unless_kept(&mut seat, first).await.map(Some)
}

/// A caller who asks for a fair lock, with what it has at the store.
struct FairSeat<'a> {
    attempt: &'a Attempt,
    /// The id under which it has its place.
    place: HolderId,
    /// The id of the hold to be: that of the place, until it is outdated.
    holder: HolderId,
    first: bool,
    /// A process has the lock that keeps it between its holds: it gives the lock back as those do who have none in a queue.
    kept: bool,
    /// The store may have a place in the queue, or even the lock, for this holder.
    known: bool,
    /// Until when a question that got no answer may still arrive. Set while one is under way: a caller who drops it does not
    /// know the answer either.
    loose_until: Option<Moment>,
    /// Local caps and counts.
    waiting: Option<Waiting>,
    /// Keeps a shutdown waiting until the place is given back.
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

    /// Returns the parts that undo, in the background, what the store may have for this seat: a place, and the lock.
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

    /// The id of the hold to be is outdated. The lock may have been granted to it, by a question that had no answer. What was
    /// granted to the place passes to the next holder.
    fn becomes_another(&mut self) {
        let undoing = self.undoing();
        self.holder = undoing.core.ids.fresh();
        let life = &self.attempt.core.life;
        life.spawn(async move { undoing.undo_hold().await });
    }

    /// A question without an answer may arrive after the hold that a later one was granted has ended, and take the
    /// lock for nobody.
    fn watch_for_strays(&self, handle: &HoldHandle) {
        let Some(until) = self.loose_until else {
            return;
        };
        let until = until + self.slack();
        let undoing = self.undoing();
        let tenure = Arc::downgrade(handle.hold().tenure());
        self.attempt.core.life.spawn(async move {
            clock::sleep_until(until).await;
            // The store takes the question no more. A hold that is good, or whose key is kept for a while, is given back
            // later than this.
            if tenure.upgrade().is_none_or(|tenure| tenure.is_given_back()) {
                undoing.undo().await;
            }
        });
    }

    /// The estimate of the server's time is late by as much as the last answer was, a call timeout at most.
    fn slack(&self) -> Duration {
        SLACK + self.attempt.core.options.call_timeout
    }
}

impl Contender for FairSeat<'_> {
    type Granted = HoldHandle;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment) -> Asked<HoldHandle> {
        let Attempt {
            core,
            request,
            deadline,
        } = self.attempt;
        let ttl = request.hold_options.ttl;
        let timeout = ttl.call_timeout(core.options.call_timeout);
        let arrives_until = now + deadline.cut(timeout, now);
        let loose = self.loose_until;
        self.loose_until = Some(loose.map_or(arrives_until, |until| until.later(arrives_until)));
        let mut asker = Asker {
            known: loose.is_some(),
            place: self.known.then_some(self.place),
            ..Asker::from(self.holder)
        };
        let (_asking, answer) = self.attempt.ask_as(&mut asker, now).await;
        self.holder = asker.holder;
        if !self.known {
            self.place = self.holder;
        }
        if !matches!(answer, Err(Fault::Unknown(_))) {
            self.loose_until = loose;
        }
        match answer {
            Ok(Acquired::Granted(granted, _)) => self.admit(granted),
            Ok(Acquired::Queued { left, first, kept }) => {
                core.presence.is_wanted();
                self.known = true;
                self.first = first;
                self.kept |= kept;
                if kept {
                    Asked::Kept(left)
                } else {
                    Asked::Busy(left)
                }
            }
            Ok(Acquired::Busy { left }) => Asked::Busy(left),
            Ok(Acquired::Kept { left }) => {
                self.kept = true;
                Asked::Kept(left)
            }
            Err(fault) => {
                if matches!(fault, Fault::TooFew(_)) {
                    // The request that gives it back may be repeated. It must not undo the next grant.
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

    fn nap(&self, left: Option<Duration>) -> Duration {
        if self.first {
            nap(&self.attempt.core.options, left).max(SHORTEST_NAP)
        } else {
            HEARTBEAT.mul_f64(0.8 + fastrand::f64() * 0.2)
        }
    }

    /// Counted from the first question on.
    fn count_as_waiting(&self) -> Result<(), LockError> {
        Ok(())
    }
}

impl Drop for FairSeat<'_> {
    /// Leaves the queue in the background. A place that cannot be given back is deserted soon.
    fn drop(&mut self) {
        if !self.known {
            return;
        }
        let undoing = self.undoing();
        let loose_until = self.loose_until.map(|until| until + self.slack());
        self.attempt.core.life.spawn(async move {
            undoing.undo().await;
            if let Some(until) = loose_until {
                clock::sleep_until(until).await;
                undoing.undo().await;
            }
        });
    }
}

/// What a seat may have left at the store.
struct Undoing {
    core: Arc<Core>,
    key: Arc<Key>,
    place: HolderId,
    holder: HolderId,
    lease: Duration,
}

impl Undoing {
    async fn undo(&self) {
        self.undo_of(self.place).await;
        self.undo_hold().await;
    }

    /// Undoes what there may be beside the place.
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
