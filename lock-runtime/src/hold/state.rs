//! One hold of one lock: what it is, and what the watchdog renews. `sharing.rs` is how guards come and go, `loss.rs` how
//! it is lost.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::keeping::{Idle, Keeping};
use super::{HoldHandle, Lifecycle, Tenure};
use crate::backend::{Granted, HoldRef, Renewal, Renewed};
use crate::queue::Head;
use crate::sync::Modelled;
use crate::values::{
    FencingToken, HoldOptions, HolderId, Key, Kind, Label, LostReason, Moment, Ttl, clock,
};

/// The state that a hold begins with.
pub(crate) struct Beginning {
    pub(crate) granted: Granted,
    /// The moment at which its caller got the lock, which may be later than what the store has confirmed.
    pub(crate) at: Moment,
    pub(crate) tenure: Option<Tenure>,
    pub(crate) keeping: Option<Box<Keeping>>,
}

impl From<Granted> for Beginning {
    /// The store has granted it just now.
    fn from(granted: Granted) -> Beginning {
        Beginning {
            granted,
            at: granted.sent_at,
            tenure: None,
            keeping: None,
        }
    }
}

/// A hold from the store's grant to its end. Shared by the guards of one call chain, their views and the watchdog.
pub(crate) struct Hold {
    pub(super) key: Arc<Key>,
    /// The key as that of a read lock, once a write hold has become one. Set under the state's lock.
    pub(super) downgraded: OnceLock<Arc<Key>>,
    pub(super) holder: HolderId,
    pub(super) token: Option<FencingToken>,
    pub(super) permits: u32,
    pub(super) label: Label,
    /// Of its manager: a holder may ask whether it shuts down.
    pub(super) life: Arc<Lifecycle>,
    pub(super) granted_at: Moment,
    /// Boxed, for few have it.
    pub(super) max_until: Option<Box<Moment>>,
    pub(super) state: Modelled<State>,
    /// Raised when the hold is lost or ended. The state is written before it is raised. Made by who waits for it before they
    /// look at the state: nobody waits who comes after the end.
    pub(super) over: OnceLock<Arc<Notify>>,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) ttl: Ttl,
    /// Until when the hold may be believed in: `sent_at + ttl − margin` of the last confirmed request.
    pub(super) deadline: Moment,
    /// The number of guards that share the hold, and the number of those that want it renewed.
    pub(super) sharers: usize,
    pub(super) renewers: usize,
    /// The number of them that write: when the last of these leaves the others, they go on as readers.
    pub(super) writers: usize,
    /// A nested request asked for a longer lease: the next renewal extends it even if nobody renews.
    pub(super) lengthen: bool,
    /// Rarely used fields, boxed to keep `State` small.
    pub(super) rare: Option<Box<Rare>>,
    /// This process's turn at the key, if a hold of this kind owns it. It leaves with the hold, or at once when the hold is
    /// lost: the next local waiter need not wait for a guard that means nothing any more.
    pub(super) head: Option<Head>,
}

#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Until when the key stays taken, even if the last sharer leaves before: the latest that one of them asked for.
    pub(super) keep_until: Option<Moment>,
    /// Guards that hold several locks as one: they are told, too, when the hold is over.
    pub(super) also_told: Vec<Weak<Notify>>,
    /// The tenure from which the next hold of this process can be granted without asking the store.
    pub(super) tenure: Option<Tenure>,
    /// For how long the process keeps the lock once the hold has ended.
    pub(super) keep_for: Option<Duration>,
    /// The state for keeping it without the store.
    pub(super) keeping: Option<Box<Keeping>>,
    /// The hold is nobody's.
    pub(super) idle: Option<Idle>,
    /// The first handle, until the caller that the hold was handed over to takes it.
    pub(super) unclaimed: Option<HoldHandle>,
}

impl State {
    /// Takes in that the store has confirmed the hold.
    pub(super) fn confirm(&mut self, asked: &Renewal, sent_at: Moment) {
        if let Some(ttl) = asked.ttl {
            self.deadline = self.deadline.later(sent_at + ttl.trusted());
            if ttl >= self.ttl {
                self.lengthen = false;
            }
        }
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(super) fn take_unclaimed(&mut self) -> Option<HoldHandle> {
        self.rare.as_mut()?.unclaimed.take()
    }

    pub(super) fn take_tenure(&mut self) -> Option<Tenure> {
        self.rare.as_mut()?.tenure.take()
    }

    pub(super) fn take_also_told(&mut self) -> Vec<Weak<Notify>> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.also_told))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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

impl Hold {
    pub(crate) fn new(
        key: Arc<Key>,
        head: Option<Head>,
        holder: HolderId,
        hold_options: HoldOptions,
        beginning: impl Into<Beginning>,
        life: Arc<Lifecycle>,
    ) -> Arc<Hold> {
        let Beginning {
            granted,
            at: granted_at,
            mut tenure,
            mut keeping,
        } = beginning.into();
        let keep_for = hold_options.keep_for;
        let is_rare = tenure.is_some() || keeping.is_some() || keep_for.is_some();
        let rare = is_rare.then(|| {
            let of_tenure = tenure.as_mut().and_then(|tenure| tenure.emptied.take());
            let of_keeping = || keeping.as_mut()?.emptied.take();
            let mut rare = of_tenure.or_else(of_keeping).unwrap_or_default();
            *rare = Rare {
                tenure,
                keep_for,
                keeping,
                ..Rare::default()
            };
            rare
        });
        let state = State {
            phase: Phase::Held,
            ttl: hold_options.ttl,
            deadline: granted.sent_at + hold_options.ttl.trusted(),
            sharers: 1,
            renewers: usize::from(hold_options.renewed),
            writers: usize::from(key.kind() == Kind::Write),
            lengthen: false,
            rare,
            head,
        };
        Arc::new(Hold {
            key,
            downgraded: OnceLock::new(),
            holder,
            token: granted.token,
            permits: hold_options.permits,
            label: hold_options.label,
            life,
            granted_at,
            max_until: hold_options
                .max_hold
                .map(|longest| Box::new(granted_at + longest)),
            state: Modelled::new(state),
            over: OnceLock::new(),
        })
    }

    /// The key, as of the kind that the hold has now.
    pub(crate) fn key(&self) -> &Arc<Key> {
        self.downgraded.get().unwrap_or(&self.key)
    }

    /// The kind that the store granted. A write that became a read is counted out as what it was counted in.
    pub(crate) fn first_kind(&self) -> Kind {
        self.key.kind()
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.holder
    }

    /// Returns what to give back to the store in the end.
    pub(crate) fn hold_ref(&self) -> HoldRef<'_> {
        HoldRef {
            key: self.key(),
            holder: self.holder,
            permits: self.permits,
            contended: false,
        }
    }

    /// The token of an exclusive hold. A write that has become a read has none any more.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token.filter(|_| self.downgraded.get().is_none())
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn label(&self) -> Label {
        self.label
    }

    pub(super) fn max_until(&self) -> Option<Moment> {
        self.max_until.as_deref().copied()
    }

    /// Raised when the hold is over; look again then.
    pub(crate) fn over_signal(&self) -> OwnedNotified {
        self.over.get_or_init(Arc::default).clone().notified_owned()
    }

    /// Raises `over`, too, when the hold is over.
    pub(crate) fn also_tell(&self, over: &Arc<Notify>) {
        let mut state = self.state.lock();
        let told = &mut state.rare().also_told;
        told.retain(|over| over.strong_count() > 0);
        told.push(Arc::downgrade(over));
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

    /// Resolves when the manager admits no more callers.
    pub(crate) async fn closing(&self) {
        self.life.closing().await;
    }

    pub(crate) fn granted_at(&self) -> Moment {
        self.granted_at
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.granted_at.elapsed()
    }

    /// True once no guard shares it any more: the last one has left it, good or lost.
    pub(crate) fn is_left(&self) -> bool {
        self.state.lock().sharers == 0
    }

    /// True once its last sharer has left it in good order.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().phase == Phase::Ended
    }

    /// Returns how long the hold may still be relied on without a further renewal.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state.lock();
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

    /// Keeps the first handle for the caller that the hold is handed over to. If the hold is lost before that caller
    /// claims the handle, the loss ends it.
    pub(crate) fn keep_unclaimed(&self, handle: HoldHandle) {
        let mut state = self.state.lock();
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
        self.state.lock().take_unclaimed()
    }

    /// True while the hold is neither lost nor ended nor past its end. Changes nothing, unlike [`loss`](Hold::loss).
    pub(crate) fn is_good_at(&self, now: Moment) -> bool {
        self.is_good(&self.state.lock(), now)
    }

    fn is_good(&self, state: &State, now: Moment) -> bool {
        state.phase == Phase::Held && self.overdue(state, now).is_none()
    }

    /// Returns the watchdog's request to the store, if the hold is good: once it has ended, its holder id may be
    /// another's.
    pub(crate) fn renewal_if_good(&self, now: Moment) -> Option<Renewal> {
        let mut state = self.state.lock();
        self.is_good(&state, now)
            .then(|| self.renewal_in(&mut state))
    }

    /// Returns the request for the next renewal.
    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal_in(&mut self.state.lock())
    }

    /// It ends the tenure: a request that is under way must not meet the hold that follows.
    pub(super) fn renewal_in(&self, state: &mut State) -> Renewal {
        state.take_tenure();
        let ttl = (state.renewers > 0 || state.lengthen).then_some(state.ttl);
        Renewal {
            key: self.key().clone(),
            holder: self.holder,
            permits: self.permits,
            ttl,
            waits: false,
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.state.lock().ttl
    }

    /// True once it is over and nothing keeps its key.
    pub(crate) fn is_given_back(&self) -> bool {
        let state = self.state.lock();
        let kept = state.rare.as_ref().and_then(|rare| rare.keep_until);
        state.phase != Phase::Held && kept.is_none_or(Moment::has_passed)
    }

    /// A nested request wants a longer lease than the last renewal asked for.
    pub(crate) fn is_to_be_lengthened(&self) -> bool {
        self.state.lock().lengthen
    }

    /// Until when the hold may be believed in, `max_hold` aside: what the store's lease allows.
    pub(crate) fn deadline(&self) -> Moment {
        self.state.lock().deadline
    }

    /// Returns the moment at which the hold is over if nothing else happens.
    pub(crate) fn end_at(&self) -> Moment {
        self.end_in(&self.state.lock())
    }

    pub(super) fn end_in(&self, state: &State) -> Moment {
        let ends = self.max_until().into_iter().chain(state.idle_until());
        ends.fold(state.deadline, Moment::earlier)
    }

    /// Takes in the answer to a renewal that was sent at `sent_at`. One that confirms the hold after its end comes too
    /// late: `is_held` has said no already.
    pub(crate) fn renewed(&self, asked: &Renewal, answer: Renewed, sent_at: Moment) {
        let mut state = self.state.lock();
        let mut news = self.expire(&mut state, clock::now());
        if state.phase == Phase::Held {
            match answer {
                Renewed::Held => state.confirm(asked, sent_at),
                // It was asked for as a write and meanwhile became a read.
                Renewed::NotHeld if asked.key.kind() != self.key().kind() => {}
                Renewed::NotHeld => news = self.end(&mut state, LostReason::Refused),
                Renewed::Unknown | Renewed::LeftOut => {}
            }
        }
        drop(state);
        self.announce(news);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (phase, sharers) = {
            let state = self.state.lock();
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
