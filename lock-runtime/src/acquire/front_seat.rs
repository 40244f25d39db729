//! The caller at the front of a local queue, which asks the store for all callers of the process.

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::Deadline;
use crate::acquire::contend::{Asked, Contender, contend};
use crate::backend::{AcquireRequest, Acquired, Fault, Granted, Listen, RESERVED, WaitingList};
use crate::hold::{HoldHandle, TurnAllowance};
use crate::queue::Front;
use crate::queue::slice::Slice;
use crate::release::hand_over::allow_turns;
use crate::release::place::Place;
use crate::values::{HolderId, Kind, LockError, Moment, rare};

/// The caller at the front of a local queue.
pub(crate) struct FrontSeat<'a> {
    attempt: &'a Attempt,
    /// `None` once the lock was granted.
    front: Option<Front>,
    /// Whether the queue was empty when the caller came, and the caller has not asked the store yet.
    is_first: bool,
    holder: HolderId,
    /// The holder's place on the store's waiting list.
    place: Option<Box<Place>>,
    /// Whether the store has refused a request of the caller.
    was_refused: bool,
}

impl<'a> FrontSeat<'a> {
    /// Makes the seat of a caller that found the queue empty.
    pub(crate) fn first(attempt: &'a Attempt, front: Front) -> FrontSeat<'a> {
        let mut seat = FrontSeat::new(attempt, front);
        seat.is_first = true;
        seat
    }

    pub(crate) fn new(attempt: &'a Attempt, front: Front) -> FrontSeat<'a> {
        FrontSeat {
            attempt,
            front: Some(front),
            is_first: false,
            holder: attempt.core.ids.fresh(),
            place: None,
            was_refused: false,
        }
    }

    /// Asks the store until the caller has the lock or gives up.
    pub(crate) async fn acquire(mut self, now: Moment) -> Result<HoldHandle, LockError> {
        let attempt = self.attempt;
        // A caller whose time is over asks no more. A caller that does not wait asks once.
        if attempt.deadline.is_over_at(now) && attempt.deadline.waits() {
            return Err(attempt.gave_up(self.front.as_ref().and_then(Front::fault)));
        }
        if let Some(listener) = self.take_over() {
            // The release before has put the holder on the list, so the lock is reserved for another process.
            self.note(|front| front.heard_from_store(None));
            let busy = Asked::busy(Some(RESERVED));
            return rare(contend(&mut self, busy, Some(listener))).await;
        }
        let listener = self.listen_before_asking();
        match self.ask(now, attempt.deadline).await {
            Asked::Granted(handle) => Ok(handle),
            first => rare(contend(&mut self, first, listener)).await,
        }
    }

    /// Takes over the place of the caller before, and returns its listener.
    fn take_over(&mut self) -> Option<Box<dyn Listen>> {
        let before = self.front.as_ref().filter(|_| !self.is_first)?;
        let mut place = before.takes_over()?;
        self.holder = place.holder;
        let listener = place.listener.take();
        self.place = Some(place);
        listener
    }

    /// Listens before the first request if this process listens already: then no second request is needed before the wait. If
    /// there is a list, the first request puts the holder on it.
    fn listen_before_asking(&mut self) -> Option<Box<dyn Listen>> {
        if self.place.is_none() && !(self.attempt.deadline.waits() && self.hears()) {
            return None;
        }
        let listener = self.listen();
        // The subscription may have begun just now.
        self.hears().then_some(listener)
    }

    /// Returns `true` if this process already receives the messages after which it asks again.
    fn hears(&self) -> bool {
        let Attempt { core, request, .. } = self.attempt;
        match self.list() {
            Some(list) => list.hears(&request.key, self.holder),
            None => core.backend.hears(&request.key),
        }
    }

    fn list(&self) -> Option<&dyn WaitingList> {
        let Attempt { core, request, .. } = self.attempt;
        core.backend.waiting_list(&request.key)
    }

    /// Returns `true` if other callers of this process wait for a lock that may be handed over to them.
    fn others_wait(&self) -> bool {
        let Attempt { core, .. } = self.attempt;
        let waiters = || self.front.as_ref().map_or(0, Front::waiters);
        !self.is_first
            && self.attempt.kind() == Kind::Mutex
            && waiters() > 0
            && core.backend.traits().hands_over
    }

    /// Takes the place for the next request, or makes one if the caller may be on the list.
    fn take_place(&mut self) -> Option<Box<Place>> {
        let Attempt { core, request, .. } = self.attempt;
        if self.place.is_none() {
            // The store may still be undoing a grant to the holder before, as a quorum undoes the votes of a minority.
            self.holder = core.ids.fresh();
            if self.attempt.deadline.waits() && self.list().is_some() && self.hears() {
                let ttl = request.hold_options.ttl;
                let place = Place::new(core, &request.key, self.holder, ttl);
                return Some(Box::new(place));
            }
        }
        self.place.take()
    }

    /// Returns `true` if a message may grant the lock. A lease that nobody renews must need nothing of this process, and a kept
    /// lock begins with a whole lease.
    fn believes(&self) -> bool {
        let options = &self.attempt.request.hold_options;
        options.renewed && options.keep_for.is_none()
    }

    fn admit(
        &mut self,
        place: Option<Box<Place>>,
        granted: Granted,
        allowance: Option<TurnAllowance>,
    ) -> HoldHandle {
        if let Some(place) = place {
            place.off_list();
        } else if self.was_refused {
            self.note(|front| _ = front.slice(Slice::note_contended));
        }
        // If the store may admit the next caller, too, the front is passed on at once.
        let mut front = self.front.take();
        match self.attempt.kind() {
            Kind::Read => front.take().into_iter().for_each(Front::let_all_go),
            kind => front = front.filter(|_| kind.is_exclusive()),
        }
        self.attempt.admit(front, self.holder, granted, allowance)
    }

    fn note(&self, note: impl FnOnce(&Front)) {
        if let Some(front) = &self.front {
            note(front);
        }
    }
}

impl Contender for FrontSeat<'_> {
    type Granted = HoldHandle;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment, deadline: Deadline) -> Asked<HoldHandle> {
        let is_new = self.place.is_none();
        // The place is not in the seat while the request is under way. A caller that is dropped then does not know the outcome,
        // and no other caller may continue as this holder.
        let place = self.take_place();
        let mut call = AcquireRequest {
            others_wait: self.others_wait(),
            again: self.was_refused,
            ..self.attempt.call(self.holder, now, deadline)
        };
        let known = place.is_some();
        call.hold_ref.listed = known;
        call.looks_for_reservation = known && is_new && self.believes();
        self.is_first = false;
        let answer = self.attempt.ask(&mut call, known).await;
        self.holder = call.hold_ref.holder;
        match answer {
            (_asking, Ok(Acquired::Granted(granted, terms))) => {
                let allowance = self
                    .front
                    .as_ref()
                    .zip(terms)
                    .and_then(|(front, terms)| allow_turns(&self.attempt.core, front, *terms));
                Asked::Granted(self.admit(place, granted, allowance))
            }
            (_, Ok(Acquired::Busy { left, kept, .. })) => {
                self.place = place;
                self.note(|front| front.heard_from_store(None));
                self.was_refused = true;
                Asked::Busy { left, kept }
            }
            // The place is lost.
            (_, Err(Fault::Outdated)) => Asked::Failed(Fault::Outdated),
            (_, Err(fault)) => {
                if fault.is_passing() {
                    self.note(|front| front.heard_from_store(Some(&fault)));
                }
                // After other faults, the request may still arrive, and is being undone. That must not hit the next request,
                // so that gets another holder.
                if fault.is_passing_no_op() {
                    self.place = place;
                }
                Asked::Failed(fault)
            }
        }
    }

    fn take_reserved(&mut self, now: Moment) -> Option<HoldHandle> {
        // The place is with a request while that is under way.
        self.place.as_ref()?;
        let (list, options) = (self.list()?, &self.attempt.request.hold_options);
        let reserved = list.take_reserved(&self.attempt.request.key, self.holder, now);
        // If others wait, an answer brings the tokens for their turns.
        let is_enough = self.believes() && !self.others_wait();
        let mut granted = reserved.filter(|_| is_enough)?;
        granted.token = granted.token.filter(|_| options.fenced);
        // Counted before the look, so that a shutdown waits for this hold or refuses it.
        let _asking = self.attempt.core.life.under_way.enter();
        if self.attempt.core.life.closed().is_some() {
            return None;
        }
        let place = self.place.take();
        Some(self.admit(place, granted, None))
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        let Attempt { core, request, .. } = self.attempt;
        match self.list() {
            Some(list) => list.listen(&request.key, self.holder),
            None => core.backend.listen(&request.key),
        }
    }

    fn asks_last(&self) -> bool {
        self.place.is_some() || self.attempt.kind() == Kind::Write
    }

    fn count_as_waiting(&self) -> Result<(), LockError> {
        self.front.as_ref().map_or(Ok(()), Front::count_as_waiting)
    }
}

impl Drop for FrontSeat<'_> {
    fn drop(&mut self) {
        if let (Some(front), Some(place)) = (&self.front, self.place.take()) {
            front.leave_place(place);
        }
    }
}
