//! Behind the other callers of this process, and then, at their head, to the store for all of them.

use std::time::Duration;

use tokio::time::Instant;

use crate::acquire::attempt::{Asker, Attempt};
use crate::acquire::contend::{Asked, Contender, contend, unless_kept};
use crate::backend::{Acquired, Boxed, Fault, Listen};
use crate::hold::{Beginning, HoldHandle, Kept};
use crate::observe;
use crate::queue::handoff_budget::{HandoffBudget, Pause};
use crate::queue::{self, Entered, Head, Legacy, Turn, Waiter};
use crate::release::hand_over::with_tenure;
use crate::release::{kept, place::Place};
use crate::values::{HolderId, Kind, LockError, Moment, StoreError, clock};

/// A head that was not heard of for this and the call timeout is not polled any more.
const SILENCE: Duration = Duration::from_secs(3);
/// For how long a store need not be asked again who is in the way.
const RELIED_ON: Duration = Duration::from_secs(5);
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

/// Deals with the store for everybody in this process who wants the key.
pub(crate) async fn at_the_head(
    attempt: &Attempt,
    head: Head,
    mut now: Moment,
) -> Result<HoldHandle, LockError> {
    let round_trip = attempt.core.backend.round_trip(attempt.key());
    let deadline = &attempt.deadline;
    let mut seat = HeadSeat::new(attempt, head);
    if let Some(away) = seat.take_over(round_trip) {
        away.await;
        now = clock::now();
    }
    // A caller who comes to the head when its time is over makes no call any more; one who does not wait makes one.
    if deadline.is_over_at(now) && attempt.request.wait != Some(Duration::ZERO) {
        return Err(attempt.gave_up(seat.head.as_ref().and_then(Head::fault)));
    }
    seat.listen_before_asking();
    match seat.ask(now).await {
        Asked::Granted(handle) => Ok(handle),
        // Boxed: the uncontended path, and the thousands that queue, need not carry its size.
        first => Box::pin(seat.contend(first)).await,
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
                            return Err(self.gave_up(Some(StoreError::new("no answer yet"))));
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

/// The head of a local queue, who deals with the store for everybody in this process who wants the key.
pub(crate) struct HeadSeat<'a> {
    attempt: &'a Attempt,
    /// Gone once the lock was granted.
    head: Option<Head>,
    holder: HolderId,
    /// The listener of a caller that has listened since before its first question.
    listener: Option<Box<dyn Listen>>,
    /// Many processes wait, so the caller listens for the message that the lock is reserved for it.
    in_crowd: bool,
    /// The holder's place on the store's list.
    place: Option<Box<Place>>,
    /// The end of the holder's lease, as the store has said, and the time until which that need not be asked again.
    /// Boxed: a request that is granted at once need not carry its size.
    known: Option<Box<(Moment, Instant)>>,
}

impl<'a> HeadSeat<'a> {
    pub(crate) fn new(attempt: &'a Attempt, head: Head) -> HeadSeat<'a> {
        HeadSeat {
            attempt,
            head: Some(head),
            holder: attempt.core.ids.fresh(),
            listener: None,
            in_crowd: false,
            place: None,
            known: None,
        }
    }

    /// Goes on where the caller before has left off. Returns the time for which the key is left to others first. Boxed: that is
    /// seldom, and every request would carry its size.
    fn take_over(&mut self, round_trip: Duration) -> Option<Boxed<'_>> {
        let (pause, legacy) = self.head.as_ref()?.takes_over(round_trip);
        if let Some(place) = legacy.place {
            self.holder = place.holder;
            self.place = Some(place);
        }
        // Processes that wait on the store's list take turns without pauses.
        let pause = pause.filter(|_| !self.waits_on_list())?;
        Some(Box::pin(self.stand_back(pause, legacy.listener)))
    }

    /// Leaves the key to others for a while. `listener` has listened since before this process's own release.
    async fn stand_back(&self, pause: Pause, listener: Option<Box<dyn Listen>>) {
        let deadline = self.attempt.deadline;
        let Some(mut listener) = listener else {
            return deadline.pause(pause.most).await;
        };
        let least = clock::now() + pause.least;
        let mut heard = 0;
        let turns = async {
            // The first message is that of this process's own release. A message that comes after the least time ends the
            // pause at once: the timer may be two milliseconds late, as long as another process's turn.
            while heard <= pause.releases || !least.has_passed() {
                tokio::select! {
                    messages = listener.heard() => heard += messages,
                    () = clock::sleep_until(least), if !least.has_passed() => {}
                }
            }
        };
        tokio::select! {
            () = turns => {}
            () = deadline.pause(pause.most) => {}
        }
        if heard > 1 {
            self.note(|head| {
                head.budget(HandoffBudget::heard_others);
            });
        }
    }

    /// Listens at once where that costs nothing: the process is on the store's list, or was lately, so that the first
    /// question puts the holder there; or it hears of releases already, and need not ask again once it listens.
    fn listen_before_asking(&mut self) {
        let waits = self.attempt.request.wait != Some(Duration::ZERO);
        self.in_crowd = self.place.is_some() || waits && self.waits_on_list();
        if self.in_crowd || waits && self.hears() {
            let listener = self.listen();
            // It may have begun to hear just now. Who is to join a crowd listens in another way.
            let is_early = match self.in_crowd {
                true => self.waits_on_list(),
                false => self.hears() && !listener.is_crowded(),
            };
            self.listener = is_early.then_some(listener);
        }
    }

    fn hears(&self) -> bool {
        let Attempt { core, request, .. } = self.attempt;
        core.backend.hears(&request.key)
    }

    fn waits_on_list(&self) -> bool {
        let Attempt { core, request, .. } = self.attempt;
        core.backend.waits_on_list(&request.key, self.holder)
    }

    /// Whether others of this process wait for a lock that may go round in it.
    fn others_wait(&self) -> bool {
        let Attempt { core, .. } = self.attempt;
        let waiters = || self.head.as_ref().map_or(0, Head::waiters);
        self.attempt.kind() == Kind::Mutex && core.backend.hand_off().is_some() && waiters() > 0
    }

    /// Takes the place under which the next question is asked, if there is one or the caller is to have one.
    fn take_place(&mut self) -> Option<Box<Place>> {
        let Attempt { core, request, .. } = self.attempt;
        if self.place.is_none() {
            // A store may still be giving back what it had for the holder before: a quorum does so with the votes of a
            // minority.
            self.holder = core.ids.fresh();
            if self.in_crowd && self.waits_on_list() {
                let ttl = request.hold_options.ttl;
                let place = Place::new(core, &request.key, self.holder, ttl);
                return Some(Box::new(place));
            }
        }
        self.place.take()
    }

    /// Returns the rest of the lease, if the store has told it lately.
    fn known_left(&self, now: Moment) -> Option<Duration> {
        let (end, relied_on) = **self.known.as_ref()?;
        let is_recent = now.tick() < relied_on && !now.has_reached(end);
        is_recent.then(|| end - now)
    }

    fn admit(&mut self, place: Option<Box<Place>>, beginning: Beginning) -> Asked<HoldHandle> {
        if let Some(place) = place {
            place.has_lock();
        }
        // Where the store may admit the next one as well, the turn goes on at once.
        let mut head = self.head.take();
        match self.attempt.kind() {
            Kind::Read => head.take().into_iter().for_each(Head::let_all_go),
            kind => head = head.filter(|_| kind.is_exclusive()),
        }
        Asked::Granted(self.attempt.admit(head, self.holder, beginning))
    }

    /// Waits after a first question that did not get the lock.
    pub(crate) async fn contend(
        mut self,
        first: Asked<HoldHandle>,
    ) -> Result<HoldHandle, LockError> {
        contend(&mut self, first).await
    }

    fn note(&self, note: impl FnOnce(&Head)) {
        if let Some(head) = &self.head {
            note(head);
        }
    }
}

impl Contender for HeadSeat<'_> {
    type Granted = HoldHandle;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment) -> Asked<HoldHandle> {
        let known_left = self.known_left(now);
        // Not the seat's while the question is under way: a caller who goes away then does not know what becomes of it, and
        // nobody else may have the lock as this holder.
        let place = self.take_place();
        let asker = Asker {
            holder: self.holder,
            contended: place.is_some(),
            others_wait: self.others_wait(),
            knows_left: known_left.is_some(),
        };
        match self.attempt.ask_as(asker, now).await {
            (_asking, Ok(Acquired::Granted(granted))) => self.admit(place, granted.into()),
            (_asking, Ok(Acquired::Tenured(tenured))) => {
                let options = &self.attempt.request.hold_options;
                let beginning = match &self.head {
                    Some(head) => with_tenure(&self.attempt.core, head, options, *tenured),
                    None => tenured.granted.into(),
                };
                self.admit(place, beginning)
            }
            (
                _,
                Ok(
                    ref busy @ (Acquired::Busy { left }
                    | Acquired::Kept { left }
                    | Acquired::Queued { left, .. }),
                ),
            ) => {
                self.place = place;
                self.note(|head| {
                    head.heard_from_store(None);
                    head.budget(HandoffBudget::saw_another);
                });
                if known_left.is_none() {
                    self.known = left.map(|left| Box::new((now + left, (now + RELIED_ON).tick())));
                }
                let left = left.or(known_left);
                match busy {
                    Acquired::Kept { .. } => Asked::Kept(left),
                    _ => Asked::Busy(left),
                }
            }
            (_, Err(fault)) => {
                if let Fault::NotDone(source) | Fault::TooFew(source) | Fault::Unknown(source) =
                    &fault
                {
                    self.note(|head| head.heard_from_store(Some(source)));
                }
                // Any other request may still arrive, and is being undone. The next one must not be.
                if matches!(fault, Fault::NotDone(_)) {
                    self.place = place;
                }
                Asked::Failed(fault)
            }
        }
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        let Attempt { core, request, .. } = self.attempt;
        match self.in_crowd {
            true => core.backend.listen_in_crowd(&request.key, self.holder),
            false => core.backend.listen(&request.key),
        }
    }

    fn joins_crowd(&mut self) -> bool {
        !std::mem::replace(&mut self.in_crowd, true)
    }

    fn first_listener(&mut self) -> Option<Box<dyn Listen>> {
        self.listener.take()
    }

    fn count_as_waiting(&self) -> Result<(), LockError> {
        self.head.as_ref().map_or(Ok(()), Head::count_as_waiting)
    }
}

impl Drop for HeadSeat<'_> {
    fn drop(&mut self) {
        if let (Some(head), place @ Some(_)) = (&self.head, self.place.take()) {
            let listener = None;
            head.bequeath(Legacy { place, listener });
        }
    }
}

#[cfg(test)]
mod tests;
