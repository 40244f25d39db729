//! From a request to a hold: re-enter, queue, ask the store, wait for a release, ask again.
//!
//! There is one deadline for all of it. Wake-up messages are hints: expiry, lost messages and fail-overs publish
//! nothing, so a head looks for itself once per [`CAP`] at the latest.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, Fault, Listen};
use crate::backoff::Backoff;
use crate::clock::{self, Moment};
use crate::core::Core;
use crate::error::{LockError, LostReason, StoreError};
use crate::fair::InLine;
use crate::gate::{self, Entry, Place, Ticket, Turn};
use crate::hold::Hold;
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;
use crate::lifecycle::Counted;
use crate::lineage::Caller;
use crate::observe;
use crate::order::{Order, Patience};
use crate::readers;
use crate::reentry::{self, ancestor, enter_nested};
use crate::share::Share;

/// How long a head sleeps at most before it looks for itself, give or take a fifth.
pub(crate) const CAP: Duration = Duration::from_secs(1);
/// A head that was not heard of for this and the call timeout is not polled any more.
const SILENCE: Duration = Duration::from_secs(3);
/// A wait behind this process's own hold that lasts so long is worth a warning.
const LONG_LOCAL_WAIT: Duration = Duration::from_secs(1);

/// The pauses after a store that failed.
pub(crate) fn pauses_after_faults() -> Backoff {
    Backoff::new(Duration::from_millis(25), Duration::from_millis(500))
}

/// Acquires within the order's wait.
pub(crate) async fn acquire(
    core: Arc<Core>,
    order: Order,
    caller: Caller,
) -> Result<Share, LockError> {
    core.start_here()?;
    let patience = Patience::new(order.wait);
    // Read anew behind everything that may have taken time, and only there.
    let mut now = patience.since;
    if let Some(ancestor) = ancestor(&core, &order, &caller)? {
        let at_once = match ancestor.turn_now(order.key.kind()) {
            Some(turn) => enter_nested(&core, &ancestor, &order, turn)?,
            None => None,
        };
        let share = match at_once {
            Some(share) => Some(share),
            // Boxed: those who are not nested need not carry its size.
            None => Box::pin(reentry::acquire(&core, &order, &caller, &patience)).await?,
        };
        if let Some(share) = share {
            return Ok(share.acquired_in(caller.frame()));
        }
        now = clock::now();
    }
    // Behind the re-entry: a body that a shutdown lets finish may still nest.
    core.life.admit(&order.key)?;
    loop {
        // Boxed: a mutex need not carry the size of the others.
        let mut share = match order.key.kind() {
            Kind::Fair => {
                let seat = InLine::new(&core, &order.key)?;
                Box::pin(until_held(&core, seat, &order, &patience, now)).await?
            }
            Kind::Read => Box::pin(readers::acquire(&core, &order, &patience)).await?,
            _ => through_the_gate(&core, &order, &patience, now).await?,
        };
        now = clock::now();
        // Dropping the share gives the lock back.
        core.life.admit(&order.key)?;
        if came_too_late(share.hold(), &order, now) {
            if !patience.is_over_at(now) {
                continue;
            }
            // A hold that was lost before its caller saw it is no hold.
            share.hold().check()?;
        }
        share.renew_from_now_on(order.terms.renewed);
        observe::acquired(order.terms.label, order.key.name(), patience.since);
        return Ok(share.acquired_in(caller.frame()));
    }
}

/// Queues behind the others of this process, then deals with the store for all of them.
async fn through_the_gate(
    core: &Arc<Core>,
    order: &Order,
    patience: &Patience,
    mut now: Moment,
) -> Result<Share, LockError> {
    loop {
        let turn = match core.gates.enter(&order.key, order.terms)? {
            Entry::Head(place) => Turn::Head(place),
            Entry::Queued(ticket) => {
                let turn = queue(ticket, order, patience, core.options.call_timeout).await?;
                now = clock::now();
                turn
            }
        };
        match turn {
            Turn::Held(unclaimed) => {
                if let Some(share) = unclaimed.claim() {
                    return Ok(share);
                }
                // Lost before this caller was polled: it asks again.
            }
            Turn::Head(place) => return at_the_head(core, place, order, patience, now).await,
            // Said to readers alone.
            Turn::Go => {}
        }
    }
}

/// True if the hold has too little of its lease left, because this task was not run in time, or is lost already.
/// Its `max_hold` does not count: a fresh one would be as short.
pub(crate) fn came_too_late(hold: &Hold, order: &Order, now: Moment) -> bool {
    hold.deadline() - now < order.terms.term.least_useful()
        || hold
            .known_loss()
            .is_some_and(|reason| reason != LostReason::MaxHold)
}

/// Acquires at once or not at all. No I/O when this process holds the key or queues for it.
pub(crate) async fn try_acquire(
    core: Arc<Core>,
    mut order: Order,
    caller: Caller,
) -> Result<Option<Share>, LockError> {
    core.start_here()?;
    order.wait = Some(Duration::ZERO);
    while let Some(ancestor) = ancestor(&core, &order, &caller)? {
        let Some(turn) = ancestor.turn_now(order.key.kind()) else {
            return Ok(None);
        };
        if let Some(share) = enter_nested(&core, &ancestor, &order, turn)? {
            return Ok(Some(share.acquired_in(caller.frame())));
        }
    }
    core.life.admit(&order.key)?;
    let patience = Patience::new(order.wait);
    let asked = if order.key.kind() == Kind::Fair {
        let Some(mut seat) = InLine::alone(&core, &order.key) else {
            return Ok(None);
        };
        Box::pin(seat.ask(&core, &order, &patience, patience.since)).await
    } else if order.key.kind() == Kind::Read {
        // Other readers of this process are not in its way.
        Box::pin(readers::ask(&core, &order, &patience)).await
    } else {
        let (place, now) = match core.gates.try_enter(&order.key) {
            Some(place) => (place, patience.since),
            None if order.key.kind().is_exclusive() => return Ok(None),
            None => match short_queue(&core, &order, &patience).await? {
                Some(place) => (place, clock::now()),
                None => return Ok(None),
            },
        };
        Head(Some(place)).ask(&core, &order, &patience, now).await
    };
    match asked {
        Asked::Held(share) => {
            core.life.admit(&order.key)?;
            // A hold that was lost before its caller saw it is no hold.
            share.hold().check()?;
            observe::acquired(order.terms.label, order.key.name(), patience.since);
            Ok(Some(share.acquired_in(caller.frame())))
        }
        Asked::Busy(_) => Ok(None),
        Asked::Failed(fault) => Err(fault.into_error(order.key.name())),
    }
}

/// The turn of somebody who does not wait, at a key that may admit several: near, unless the one at the head has
/// to wait itself.
async fn short_queue(
    core: &Core,
    order: &Order,
    patience: &Patience,
) -> Result<Option<Place>, LockError> {
    let turn = match core.gates.enter(&order.key, order.terms)? {
        Entry::Head(place) => return Ok(Some(place)),
        Entry::Queued(ticket) => queue(ticket, order, patience, core.options.call_timeout).await,
    };
    match turn {
        Ok(Turn::Head(place)) => Ok(Some(place)),
        Ok(Turn::Held(_) | Turn::Go) | Err(LockError::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits in the local queue.
pub(crate) async fn queue(
    mut ticket: Ticket,
    order: &Order,
    patience: &Patience,
    timeout: Duration,
) -> Result<Turn, LockError> {
    let ends_before = |at: Moment| patience.until.map_or(at, |until| until.earlier(at));
    let warn_at = patience.since + LONG_LOCAL_WAIT;
    let mut timer = std::pin::pin!(clock::sleep_until(ends_before(warn_at)));
    let mut warned = false;
    loop {
        tokio::select! {
            biased;
            turn = ticket.turn() => return turn.ok_or_else(|| gate::closed(&order.key)),
            () = timer.as_mut() => {}
        }
        if patience.is_over() {
            // The head waits for its first answer: it may be that the store is away, and then "busy" would be a lie.
            if let Some(news) = ticket.first_news() {
                // Whoever does not wait at all still gets that one answer.
                let longer = match order.wait {
                    Some(Duration::ZERO) => timeout,
                    _ => Duration::ZERO,
                };
                tokio::select! {
                    biased;
                    turn = ticket.turn() => return turn.ok_or_else(|| gate::closed(&order.key)),
                    () = news => {}
                    () = clock::sleep(longer) => {
                        return Err(gave_up(Some(StoreError::new("no answer yet")), order, patience));
                    }
                }
            }
            return Err(gave_up(ticket.fault(), order, patience));
        }
        if !std::mem::replace(&mut warned, true)
            && let Some(holder) = ticket.blocked_by()
        {
            observe::long_local_wait(order.key.name(), order.terms.label, holder);
        }
        ticket.look_at_head();
        let next_look = clock::now() + timeout + SILENCE;
        timer.as_mut().reset(ends_before(next_look).tick());
    }
}

/// What one question to the store gave.
pub(crate) enum Asked {
    Held(Share),
    /// What is left of the lease.
    Busy(Option<Duration>),
    Failed(Fault),
}

/// From where somebody deals with the store: the head of a local queue, or a place in the store's own. Dropped, it is
/// given up.
pub(crate) trait Seat {
    /// Asks the store once. The seat of whoever is granted the lock is theirs no more.
    fn ask(
        &mut self,
        core: &Arc<Core>,
        order: &Order,
        patience: &Patience,
        now: Moment,
    ) -> impl Future<Output = Asked> + Send;

    /// Listens for what makes it worth while to ask again.
    fn listen(&self, core: &Core, key: &Arc<Key>) -> Box<dyn Listen>;

    /// How long to sleep at most, given what was left of the lease.
    fn nap(&self, left: Option<Duration>) -> Duration;

    /// Counts the caller among those who wait, once the store has not granted the lock.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    fn waits(&self) -> Result<(), LockError>;
}

/// Asks the store once as `holder`. The count is to be kept until a grant counts as a guard: a shutdown in between
/// would leave the lock to its lease.
pub(crate) async fn ask_as(
    core: &Core,
    order: &Order,
    patience: &Patience,
    holder: HolderId,
    now: Moment,
) -> (Counted, Result<Acquired, Fault>) {
    let asking = core.life.under_way.enter();
    if let Some(why) = core.life.closed() {
        return (asking, Err(Fault::Closed(why)));
    }
    let mut claim = core.claim(&order.key, holder, &order.terms, now);
    claim.timeout = patience.cut(claim.timeout, now);
    claim.waits = patience.rest(order.wait, now);
    let answer = core.backend.acquire(claim).await;
    (asking, answer)
}

/// The head of a local queue, who deals with the store for everybody in this process who wants the key.
pub(crate) struct Head(pub(crate) Option<Place>);

impl Head {
    fn note(&self, note: impl FnOnce(&Place)) {
        if let Some(place) = &self.0 {
            note(place);
        }
    }
}

impl Seat for Head {
    async fn ask(
        &mut self,
        core: &Arc<Core>,
        order: &Order,
        patience: &Patience,
        now: Moment,
    ) -> Asked {
        let holder = core.ids.fresh();
        match ask_as(core, order, patience, holder, now).await {
            (_asking, Ok(Acquired::Granted(granted))) => {
                // Where the store may admit the next one as well, the turn goes on at once.
                let mut place = self.0.take();
                match order.key.kind() {
                    Kind::Read => place.take().into_iter().for_each(Place::admit_all),
                    kind => place = place.filter(|_| kind.is_exclusive()),
                }
                let (key, terms) = (&order.key, order.terms);
                Asked::Held(Share::admit(core, key, place, holder, terms, granted))
            }
            (_, Ok(Acquired::Busy { left } | Acquired::Queued { left, .. })) => {
                self.note(|place| {
                    place.heard_from_store(None);
                    place.pace(crate::pace::Pace::saw_another);
                });
                Asked::Busy(left)
            }
            (_, Err(fault)) => {
                if let Fault::NotDone(source) | Fault::TooFew(source) | Fault::Unknown(source) =
                    &fault
                {
                    self.note(|place| place.heard_from_store(Some(source)));
                }
                Asked::Failed(fault)
            }
        }
    }

    fn listen(&self, core: &Core, key: &Arc<Key>) -> Box<dyn Listen> {
        core.backend.listen(key)
    }

    fn nap(&self, left: Option<Duration>) -> Duration {
        nap(left)
    }

    fn waits(&self) -> Result<(), LockError> {
        self.0.as_ref().map_or(Ok(()), Place::waits)
    }
}

/// Until the lease's end or the cap.
pub(crate) fn nap(left: Option<Duration>) -> Duration {
    let cap = CAP.mul_f64(0.8 + fastrand::f64() * 0.4);
    // A millisecond past the lease's end, or the store has not noticed it yet.
    left.map_or(cap, |left| (left + Duration::from_millis(1)).min(cap))
}

/// Deals with the store for everybody in this process who wants the key.
pub(crate) async fn at_the_head(
    core: &Arc<Core>,
    place: Place,
    order: &Order,
    patience: &Patience,
    mut now: Moment,
) -> Result<Share, LockError> {
    if let Some(pause) = place
        .pace(|pace| pace.pause(core.backend.round_trip(&order.key)))
        .flatten()
    {
        patience.pause(pause).await;
        now = clock::now();
    }
    // Whoever comes to the head when its time is over makes no call any more; a request that does not wait makes one.
    if patience.is_over_at(now) && order.wait != Some(Duration::ZERO) {
        return Err(gave_up(place.fault(), order, patience));
    }
    until_held(core, Head(Some(place)), order, patience, now).await
}

/// Asks from a seat until the lock is held or the patience ends.
pub(crate) async fn until_held<S: Seat>(
    core: &Arc<Core>,
    mut seat: S,
    order: &Order,
    patience: &Patience,
    now: Moment,
) -> Result<Share, LockError> {
    match seat.ask(core, order, patience, now).await {
        Asked::Held(share) => Ok(share),
        // Boxed: the uncontended path, and the thousands that queue, need not carry its size.
        first => Box::pin(contend(core, seat, order, patience, first)).await,
    }
}

/// Waits after a first attempt that did not get the lock.
pub(crate) async fn contend<S: Seat>(
    core: &Arc<Core>,
    mut seat: S,
    order: &Order,
    patience: &Patience,
    first: Asked,
) -> Result<Share, LockError> {
    let mut outcome = first;
    let mut listener: Option<Box<dyn Listen>> = None;
    let mut pauses = pauses_after_faults();
    // The last definite answer decides what the caller is told in the end; `Some(left)` was one.
    let mut answer: Option<Option<Duration>> = None;
    loop {
        let fault = match outcome {
            Asked::Held(share) => return Ok(share),
            Asked::Busy(left) => {
                answer = Some(left);
                pauses.reset();
                None
            }
            Asked::Failed(fault) if !fault.is_passing() => {
                return Err(fault.into_error(order.key.name()));
            }
            Asked::Failed(fault) => {
                if matches!(fault, Fault::TooFew(_)) {
                    // It was had: nobody's being before it is a reason any more. And the seat may be another.
                    (answer, listener) = (None, None);
                }
                Some(fault)
            }
        };
        if patience.is_over() {
            return Err(match (answer, fault) {
                (Some(left), _) => order.busy(patience, left),
                (None, Some(fault)) => fault.into_error(order.key.name()),
                (None, None) => order.busy(patience, None),
            });
        }
        seat.waits()?;
        let waiting = async {
            match (&fault, &mut listener) {
                (Some(_), _) => patience.pause(pauses.pause()).await,
                (None, None) => {
                    // A release between the attempt and the subscription would be missed: ask again after it.
                    let listener = listener.insert(seat.listen(core, &order.key));
                    tokio::select! {
                        () = listener.ready() => {}
                        () = patience.pause(CAP) => {}
                    }
                }
                (None, Some(listener)) => {
                    tokio::select! {
                        () = listener.heard() => {}
                        () = patience.pause(seat.nap(answer.flatten())) => {}
                    }
                }
            }
        };
        tokio::select! {
            () = waiting => {}
            () = core.life.closing() => return Err(gate::closed(&order.key)),
        }
        let now = clock::now();
        if patience.is_over_at(now) {
            // No further call: its answer would come too late. What was known last is the answer.
            outcome = match fault {
                Some(fault) => Asked::Failed(fault),
                None => Asked::Busy(answer.flatten()),
            };
            continue;
        }
        outcome = seat.ask(core, order, patience, now).await;
    }
}

/// What somebody is told who never asked the store: what the one at the head last heard from it.
pub(crate) fn gave_up(fault: Option<StoreError>, order: &Order, patience: &Patience) -> LockError {
    match fault {
        Some(source) => LockError::Unavailable {
            name: order.key.name().to_owned(),
            source,
        },
        None => order.busy(patience, None),
    }
}
