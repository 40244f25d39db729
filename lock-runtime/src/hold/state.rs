//! One hold of one lock: what guards share, what the watchdog renews, what a loss ends.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::backend::{Granted, HoldRef, Renewal, Renewed};
use crate::hold::handle::HoldHandle;
use crate::observe;
use crate::queue::Head;
use crate::sync::{Mutex, MutexGuard};
use crate::values::clock::{self, Moment};
use crate::values::error::{LockError, LostReason};
use crate::values::fence::FencingToken;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::options::HoldOptions;
use crate::values::ttl::Ttl;

/// A hold from the store's grant to its end. Shared by the guards of one call chain, their views and the watchdog.
pub(crate) struct Hold {
    key: Arc<Key>,
    /// The key as that of a read lock, once a write hold has become one. Set under the state's lock.
    downgraded: OnceLock<Arc<Key>>,
    holder: HolderId,
    token: Option<FencingToken>,
    permits: u32,
    label: &'static str,
    granted_at: Moment,
    /// Boxed, for few have it.
    max_until: Option<Box<Moment>>,
    state: Mutex<State>,
    /// Raised when the hold is lost or ended. The state is written before it is raised.
    over: Arc<Notify>,
}

struct State {
    phase: Phase,
    ttl: Ttl,
    /// Until when the hold may be believed in: `sent_at + ttl − margin` of the last confirmed request.
    deadline: Moment,
    /// How many guards share the hold, and how many of them want it renewed.
    sharers: usize,
    renewers: usize,
    /// How many of them write: when the last of these leaves the others, they go on as readers.
    writers: usize,
    /// A nested request asked for a longer lease: the next renewal extends it even if nobody renews.
    lengthen: bool,
    /// What few holds have, out of the way of the many.
    rare: Option<Box<Rare>>,
    /// This process's turn at the key, if a hold of this kind owns it. Leaves with the hold, or at once when it is lost: the next local waiter
    /// need not wait for a guard that means nothing any more.
    head: Option<Head>,
}

#[derive(Default)]
struct Rare {
    /// Until when the key stays taken, even if the last sharer leaves before: the latest that one of them asked for.
    keep_until: Option<Moment>,
    /// Guards that hold several locks as one: they are told, too, when the hold is over.
    also_told: Vec<Weak<Notify>>,
    /// The first handle, until the caller that the hold was handed over to takes it.
    unclaimed: Option<HoldHandle>,
}

impl State {
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn take_unclaimed(&mut self) -> Option<HoldHandle> {
        self.rare.as_mut()?.unclaimed.take()
    }

    fn take_also_told(&mut self) -> Vec<Weak<Notify>> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.also_told))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Lost {
        reason: LostReason,
        held_for: Duration,
        /// False if it was handed over to a caller who did not take it in time.
        claimed: bool,
    },
    /// The last sharer left.
    Ended,
}

/// A loss that others are still to be told of.
struct News {
    reason: LostReason,
    head: Option<Head>,
    also_told: Vec<Weak<Notify>>,
    unclaimed: Option<HoldHandle>,
}

/// What the last sharer takes along when it leaves.
pub(crate) enum Left {
    /// Others still share the hold.
    Shared,
    /// The last writer left, and readers still share the hold: downgrade it. With this process's turn at the key.
    Reading(Option<Head>),
    /// The hold was good: release it. With this process's turn at the key, if it owned that.
    Good {
        head: Option<Head>,
        left_at: Moment,
        /// Until when the key stays taken.
        keep_until: Option<Moment>,
    },
    /// The hold was lost before; whether this was its last sharer.
    Lost { reason: LostReason, last: bool },
}

impl Hold {
    pub(crate) fn new(
        key: Arc<Key>,
        head: Option<Head>,
        holder: HolderId,
        hold_options: HoldOptions,
        granted: Granted,
    ) -> Arc<Hold> {
        let state = State {
            phase: Phase::Held,
            ttl: hold_options.ttl,
            deadline: granted.sent_at + hold_options.ttl.trusted(),
            sharers: 1,
            renewers: usize::from(hold_options.renewed),
            writers: usize::from(key.kind() == Kind::Write),
            lengthen: false,
            rare: None,
            head,
        };
        Arc::new(Hold {
            key,
            downgraded: OnceLock::new(),
            holder,
            token: granted.token,
            permits: hold_options.permits,
            label: hold_options.label,
            granted_at: granted.sent_at,
            max_until: hold_options
                .max_hold
                .map(|longest| Box::new(granted.sent_at + longest)),
            state: Mutex::new(state),
            over: Arc::default(),
        })
    }

    /// The key, as of the kind that the hold has now.
    pub(crate) fn key(&self) -> &Arc<Key> {
        self.downgraded.get().unwrap_or(&self.key)
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.holder
    }

    /// What to give back to the store in the end.
    pub(crate) fn hold_ref(&self) -> HoldRef<'_> {
        HoldRef {
            key: self.key(),
            holder: self.holder,
            permits: self.permits,
        }
    }

    /// The token of an exclusive hold. A write that has become a read has none any more.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token.filter(|_| self.downgraded.get().is_none())
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn label(&self) -> &'static str {
        self.label
    }

    fn max_until(&self) -> Option<Moment> {
        self.max_until.as_deref().copied()
    }

    /// Raised when the hold is over; look again then.
    pub(crate) fn over_signal(&self) -> OwnedNotified {
        self.over.clone().notified_owned()
    }

    /// Raises `over`, too, when the hold is over.
    pub(crate) fn also_tell(&self, over: &Arc<Notify>) {
        let mut state = self.state();
        let told = &mut state.rare().also_told;
        told.retain(|over| over.strong_count() > 0);
        told.push(Arc::downgrade(over));
    }

    /// Wakes those who wait for the end. After the state was written, and outside of its lock.
    fn tell(&self, also_told: Vec<Weak<Notify>>) {
        self.over.notify_waiters();
        for over in also_told.iter().filter_map(Weak::upgrade) {
            over.notify_waiters();
        }
    }

    /// Resolves when the hold is over, lost or released.
    pub(crate) async fn over(self: Arc<Hold>) {
        loop {
            // Made before the look: a signal in between reaches it.
            let over = self.over_signal();
            if self.is_over() {
                return;
            }
            over.await;
        }
    }

    pub(crate) fn granted_at(&self) -> Moment {
        self.granted_at
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.granted_at.elapsed()
    }

    // Nothing panics while the state is locked, so a poisoned one is still whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the hold was lost, if it was. The local deadline counts from here on: it needs no timer to be true.
    pub(crate) fn loss(&self) -> Option<LostReason> {
        match self.look() {
            Phase::Lost { reason, .. } => Some(reason),
            Phase::Held | Phase::Ended => None,
        }
    }

    /// The phase by now: a hold whose time is over is lost from here on.
    fn look(&self) -> Phase {
        let mut state = self.state();
        let news = self.expire(&mut state, clock::now());
        let phase = state.phase;
        drop(state);
        self.announce(news);
        phase
    }

    /// Ends a hold whose time is over by `now`. Everything that looks at the hold or changes it under the same lock has this
    /// done first: an end and a renewal that cross are then one after the other.
    #[must_use = "announce it once the state is unlocked"]
    fn expire(&self, state: &mut State, now: Moment) -> Option<News> {
        let reason = self.overdue(state, now)?;
        self.end(state, reason)
    }

    /// Ends the hold as lost: the first reason counts, and an ended hold cannot be lost.
    #[must_use = "announce it once the state is unlocked"]
    fn end(&self, state: &mut State, reason: LostReason) -> Option<News> {
        if state.phase != Phase::Held {
            return None;
        }
        let unclaimed = state.take_unclaimed();
        state.phase = Phase::Lost {
            reason,
            held_for: self.held_for(),
            claimed: unclaimed.is_none(),
        };
        Some(News {
            reason,
            head: state.head.take(),
            also_told: state.take_also_told(),
            unclaimed,
        })
    }

    /// Tells of a loss. Outside of the state's lock: this wakes others.
    fn announce(&self, news: Option<News>) {
        let Some(news) = news else { return };
        self.tell(news.also_told);
        // This wakes the next local waiter.
        drop(news.head);
        // Nobody ever had it: the store is told at once.
        match news.unclaimed {
            Some(unclaimed) => drop(unclaimed),
            None => observe::count_lost(self.label, news.reason),
        }
    }

    fn overdue(&self, state: &State, now: Moment) -> Option<LostReason> {
        if self.max_until().is_some_and(|max| now.has_reached(max)) {
            Some(LostReason::MaxHold)
        } else if now.has_reached(state.deadline) {
            Some(LostReason::Expired)
        } else {
            None
        }
    }

    /// The loss as an error.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.loss()
            .map_or(Ok(()), |reason| Err(self.lost_error(reason, false)))
    }

    /// As [`loss`](Hold::loss), for a caller that has just seen that its time is not over: reads no clock.
    pub(crate) fn known_loss(&self) -> Option<LostReason> {
        match self.state().phase {
            Phase::Lost { reason, .. } => Some(reason),
            Phase::Held | Phase::Ended => None,
        }
    }

    /// Whether any caller ever had the hold, as far as is known once it is lost.
    pub(crate) fn was_claimed(&self) -> bool {
        !matches!(self.state().phase, Phase::Lost { claimed: false, .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        self.look() == Phase::Held
    }

    /// True once no guard shares it any more: the last one has left it, good or lost.
    pub(crate) fn is_left(&self) -> bool {
        self.state().sharers == 0
    }

    /// True once its last sharer has left it in good order.
    pub(crate) fn is_ended(&self) -> bool {
        self.state().phase == Phase::Ended
    }

    pub(crate) fn is_over(&self) -> bool {
        self.look() != Phase::Held
    }

    /// How long the hold may still be believed in without a further renewal.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state();
        match state.phase {
            Phase::Held => {
                let until = self
                    .max_until()
                    .map_or(state.deadline, |max| max.earlier(state.deadline));
                until.remaining()
            }
            Phase::Lost { .. } | Phase::Ended => Duration::ZERO,
        }
    }

    /// The error of a lost hold.
    pub(crate) fn lost_error(&self, reason: LostReason, completed: bool) -> LockError {
        let held_for = match self.state().phase {
            Phase::Lost { held_for, .. } => held_for,
            Phase::Held | Phase::Ended => self.held_for(),
        };
        LockError::Lost {
            name: self.key.name().to_owned(),
            held_for,
            reason,
            completed,
        }
    }

    /// Ends the hold as lost: the first reason counts, and an ended hold cannot be lost.
    pub(crate) fn lose(&self, reason: LostReason) {
        let news = self.end(&mut self.state(), reason);
        self.announce(news);
    }

    /// Keeps the first handle for the caller that the hold is handed over to. If the hold is lost before that caller
    /// claims the handle, the loss ends it.
    pub(crate) fn keep_unclaimed(&self, handle: HoldHandle) {
        let mut state = self.state();
        if state.phase == Phase::Held {
            state.rare().unclaimed = Some(handle);
            return;
        }
        // A handle that is dropped leaves its hold.
        drop(state);
        drop(handle);
    }

    /// The handle that was kept; `None` if the hold was lost meanwhile.
    pub(crate) fn claim(&self) -> Option<HoldHandle> {
        self.state().take_unclaimed()
    }

    /// Counts one more sharer who wants the hold renewed. True if a renewal is due by now.
    pub(crate) fn add_renewer(&self) -> bool {
        let mut state = self.state();
        state.renewers += 1;
        let since_confirmed = state
            .ttl
            .trusted()
            .saturating_sub(state.deadline.remaining());
        let is_due = since_confirmed > state.ttl.cadence();
        // A check that is under way does not extend the lease: another request must follow it.
        state.lengthen |= is_due;
        is_due
    }

    /// Adds a sharer with its options; tells whether the lease is to be lengthened, so that the watchdog should look
    /// at it now. `None` if the hold was released meanwhile.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the hold is lost, and somebody still shares it.
    pub(crate) fn share(
        &self,
        hold_options: HoldOptions,
        kind: Kind,
    ) -> Result<Option<bool>, LockError> {
        let mut state = self.state();
        let news = self.expire(&mut state, clock::now());
        if let Phase::Lost { reason, .. } = state.phase {
            let is_left = state.sharers == 0;
            drop(state);
            self.announce(news);
            return if is_left {
                Ok(None)
            } else {
                Err(self.lost_error(reason, false))
            };
        }
        if state.phase != Phase::Held || (kind == Kind::Write && state.writers == 0) {
            return Ok(None);
        }
        state.writers += usize::from(kind == Kind::Write);
        state.sharers += 1;
        state.renewers += usize::from(hold_options.renewed);
        let longer = hold_options.ttl > state.ttl;
        if longer {
            state.ttl = hold_options.ttl;
            state.lengthen = true;
        }
        Ok(Some(longer))
    }

    /// Takes a sharer out. The key stays taken until its `keep_until`, no matter which sharer leaves last.
    pub(crate) fn leave(
        &self,
        kind: Kind,
        renewed: bool,
        keep_until: Option<Moment>,
        now: Moment,
    ) -> Left {
        let mut state = self.state();
        let news = self.expire(&mut state, now);
        if let Some(keep_until) = keep_until {
            let latest = &mut state.rare().keep_until;
            *latest = Some(latest.map_or(keep_until, |latest| latest.later(keep_until)));
        }
        state.sharers -= 1;
        state.renewers -= usize::from(renewed);
        state.writers -= usize::from(kind == Kind::Write);
        if let Phase::Lost { reason, .. } = state.phase {
            let last = state.sharers == 0;
            drop(state);
            self.announce(news);
            return Left::Lost { reason, last };
        }
        if state.sharers > 0 {
            return match kind {
                Kind::Write => self.after_a_writer(&mut state),
                _ => Left::Shared,
            };
        }
        state.phase = Phase::Ended;
        let head = state.head.take();
        let also_told = state.take_also_told();
        let keep_until = state.rare.as_ref().and_then(|rare| rare.keep_until);
        drop(state);
        self.tell(also_told);
        Left::Good {
            head,
            left_at: now,
            keep_until,
        }
    }

    /// Makes one of those who write a reader.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub(crate) fn stop_writing(&self) -> Result<Left, LockError> {
        self.check()?;
        let mut state = self.state();
        if let Phase::Lost { reason, .. } = state.phase {
            drop(state);
            return Err(self.lost_error(reason, false));
        }
        state.writers -= 1;
        Ok(self.after_a_writer(&mut state))
    }

    /// A writer stopped to write, and somebody goes on reading: the last one makes the hold one of a read.
    fn after_a_writer(&self, state: &mut State) -> Left {
        if state.writers > 0 {
            return Left::Shared;
        }
        // From here on it is renewed and released as a read, which knows both forms in the store.
        let _ = self.downgraded.set(Arc::new(self.key.as_kind(Kind::Read)));
        Left::Reading(state.head.take())
    }

    /// True while the hold is neither lost nor ended nor past its end. Changes nothing, unlike [`loss`](Hold::loss).
    pub(crate) fn is_good_at(&self, now: Moment) -> bool {
        let state = self.state();
        state.phase == Phase::Held && self.overdue(&state, now).is_none()
    }

    /// What to ask of the store at the next renewal.
    pub(crate) fn renewal(&self) -> Renewal {
        let state = self.state();
        let ttl = (state.renewers > 0 || state.lengthen).then_some(state.ttl);
        Renewal {
            key: self.key().clone(),
            holder: self.holder,
            permits: self.permits,
            ttl,
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.state().ttl
    }

    /// True once it is over and nothing keeps its key.
    pub(crate) fn is_given_back(&self) -> bool {
        let state = self.state();
        let kept = state.rare.as_ref().and_then(|rare| rare.keep_until);
        state.phase != Phase::Held && kept.is_none_or(Moment::has_passed)
    }

    /// A nested request wants a longer lease than the last renewal asked for.
    pub(crate) fn is_to_be_lengthened(&self) -> bool {
        self.state().lengthen
    }

    /// Until when the hold may be believed in, `max_hold` aside: what the store's lease allows.
    pub(crate) fn deadline(&self) -> Moment {
        self.state().deadline
    }

    /// When the hold is over if nothing else happens.
    pub(crate) fn end_at(&self) -> Moment {
        let deadline = self.deadline();
        self.max_until()
            .map_or(deadline, |max| max.earlier(deadline))
    }

    /// Takes in the answer to a renewal that was sent at `sent_at`. One that confirms the hold after its end comes too
    /// late: `is_held` has said no already.
    pub(crate) fn renewed(&self, asked: &Renewal, answer: Renewed, sent_at: Moment) {
        let mut state = self.state();
        let mut news = self.expire(&mut state, clock::now());
        if state.phase == Phase::Held {
            match answer {
                Renewed::Held => {
                    if let Some(ttl) = asked.ttl {
                        state.deadline = state.deadline.later(sent_at + ttl.trusted());
                        if ttl >= state.ttl {
                            state.lengthen = false;
                        }
                    }
                }
                // It was asked for as a write and meanwhile became a read.
                Renewed::NotHeld if asked.key.kind() != self.key().kind() => {}
                Renewed::NotHeld => news = self.end(&mut state, LostReason::Refused),
                Renewed::Unknown => {}
            }
        }
        drop(state);
        self.announce(news);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (phase, sharers) = {
            let state = self.state();
            (state.phase, state.sharers)
        };
        f.debug_struct("Hold")
            .field("key", &self.key)
            .field("holder", &self.holder)
            .field("token", &self.token)
            .field("phase", &phase)
            .field("sharers", &sharers)
            .finish_non_exhaustive()
    }
}
