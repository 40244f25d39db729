//! One caller's time with a lock. The tenure below it may have had turns before, and may have more. How guards come and go is
//! in `sharing.rs`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::tenure::Tenure;
use crate::queue::Front;
use crate::values::{
    Counted, FencingToken, HoldOptions, HolderId, Key, Kind, Label, Moment, Ttl, clock,
};

/// What one caller, with its call chain, asked for and has. The tenure's state has the current turn.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) label: Label,
    pub(crate) token: Option<FencingToken>,
    /// The moment at which its caller got the lock, which may be later than what the store has confirmed.
    pub(crate) granted_at: Moment,
    /// The longest lease that one of the guards asked for.
    pub(crate) ttl: Ttl,
    /// A guard wants a longer lease than the last request asked for. The next request extends it even if nobody renews.
    pub(super) lengthen: bool,
    /// The number of guards that share the turn, and the number of those that want it renewed.
    sharers: u32,
    renewers: u32,
    /// The number of guards that write: when the last of these leaves, the others go on as readers.
    writers: u32,
    /// For how long the process keeps the lock once the turn has ended.
    pub(crate) keep_for: Option<Duration>,
    /// The front of this process at the key, if turns of this kind own it. It leaves with the turn, or at once when the
    /// turn is lost: the next local waiter need not wait for a guard that means nothing any more.
    pub(crate) front: Option<Front>,
    /// Set until the caller that the lock was handed over to is polled: no guard shares the turn before. So it is not renewed,
    /// and a caller that is not polled any more keeps the lock for its lease at most. A shutdown waits for the offer, until a
    /// loss ends it.
    pub(super) offered: Option<Counted>,
    /// Nobody waited behind the front when the turn ended: the release need not look for a successor.
    pub(crate) nobody_waits: bool,
    extras: Option<Box<TurnExtras>>,
}

/// What few turns need, and so in a box.
#[derive(Debug, Default)]
struct TurnExtras {
    max_until: Option<Moment>,
    /// Until when the key stays taken, even if the last sharer leaves before: the latest time that a sharer asked for.
    cover_until: Option<Moment>,
    /// Guards that hold several locks as one: they are notified, too, when the turn is over.
    also_told: Vec<Weak<Notify>>,
}

impl Turn {
    /// A turn that no guard shares yet.
    pub(super) fn new(
        options: &HoldOptions,
        token: Option<FencingToken>,
        front: Option<Front>,
        granted_at: Moment,
    ) -> Turn {
        let extras = options.max_hold.map(|longest| {
            Box::new(TurnExtras {
                max_until: Some(granted_at + longest),
                ..TurnExtras::default()
            })
        });
        Turn {
            token,
            keep_for: options.keep_for,
            extras,
            ..Turn::of_nobody(options.label, options.ttl, front, granted_at)
        }
    }

    /// The turn of no caller, for a lock that is given back after an idle time.
    pub(crate) fn of_nobody(label: Label, ttl: Ttl, front: Option<Front>, now: Moment) -> Turn {
        Turn {
            label,
            token: None,
            granted_at: now,
            ttl,
            lengthen: false,
            sharers: 0,
            renewers: 0,
            writers: 0,
            keep_for: None,
            front,
            offered: None,
            nobody_waits: false,
            extras: None,
        }
    }

    /// Counts one more guard, which shares the turn as `kind`.
    pub(super) fn join(&mut self, kind: Kind) {
        self.sharers += 1;
        self.writers += u32::from(kind == Kind::Write);
    }

    /// Removes a guard from the count. Returns whether it was the last one.
    pub(super) fn part(&mut self, kind: Kind, renewed: bool) -> bool {
        self.sharers -= 1;
        self.renewers -= u32::from(renewed);
        self.writers -= u32::from(kind == Kind::Write);
        self.sharers == 0
    }

    pub(super) fn is_shared(&self) -> bool {
        self.sharers > 0
    }

    /// Whether the guard that leaves next may pass the front on.
    pub(super) fn is_last_at_the_front(&self) -> bool {
        self.sharers == 1 && self.front.is_some()
    }

    pub(super) fn max_until(&self) -> Option<Moment> {
        self.extras.as_ref()?.max_until
    }

    /// The lease that the next renewal extends, if anybody wants that.
    pub(super) fn wanted_lease(&self) -> Option<Ttl> {
        (self.renewers > 0 || self.lengthen).then_some(self.ttl)
    }

    /// Counts a guard that wants the turn renewed from now on. Returns whether it is the first one.
    pub(super) fn add_renewer(&mut self) -> bool {
        self.renewers += 1;
        self.renewers == 1
    }

    /// Removes a writer from the count: its guard goes on as a reader's.
    pub(super) fn stop_writing(&mut self) {
        self.writers -= 1;
    }

    pub(super) fn is_written(&self) -> bool {
        self.writers > 0
    }

    /// The key stays taken until then, or longer.
    pub(super) fn cover_until(&mut self, until: Moment) {
        let latest = &mut self.extras.get_or_insert_default().cover_until;
        *latest = Some(latest.map_or(until, |latest| latest.later(until)));
    }

    /// Until when the key stays taken, if that is after `now`.
    pub(crate) fn covered_until(&self, now: Moment) -> Option<Moment> {
        let until = self.extras.as_ref()?.cover_until;
        until.filter(|until| !now.has_reached(*until))
    }

    pub(super) fn take_also_told(&mut self) -> Vec<Weak<Notify>> {
        let extras = self.extras.as_mut();
        extras.map_or_else(Vec::new, |extras| std::mem::take(&mut extras.also_told))
    }
}

/// What guards, leases and call-chain levels refer to: a tenure, and the number of one of its turns.
#[derive(Clone)]
pub(crate) struct Hold {
    pub(super) tenure: Arc<Tenure>,
    pub(super) turn: u64,
    token: Option<FencingToken>,
}

impl Hold {
    pub(super) fn new(tenure: Arc<Tenure>, turn: u64, token: Option<FencingToken>) -> Hold {
        Hold {
            tenure,
            turn,
            token,
        }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        self.tenure.key()
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.tenure.holder()
    }

    pub(crate) fn permits(&self) -> u32 {
        self.tenure.permits()
    }

    /// The token of an exclusive hold. A write that has become a read has none any more.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
            .filter(|_| self.tenure.downgraded.get().is_none())
    }

    /// Looks at the turn, or changes it. `None` once it has ended in good order.
    pub(crate) fn with_turn<T>(&self, look: impl FnOnce(&mut Turn) -> T) -> Option<T> {
        let mut state = self.tenure.state.lock();
        let is_current = state.turn == self.turn;
        state.turn_mut().filter(|_| is_current).map(look)
    }

    /// Returns what the log calls the lock of the turn.
    pub(crate) fn label(&self) -> &'static str {
        let label = self.with_turn(|turn| turn.label.lock);
        label.unwrap_or(Label::UNLABELLED)
    }

    /// Limits the turn from now on, unless something limits it already. Returns whether it does.
    pub(super) fn ends_after(&self, longest: Duration) -> bool {
        let limited = self.with_turn(|turn| {
            let limit = &mut turn.extras.get_or_insert_default().max_until;
            let is_new = limit.is_none();
            limit.get_or_insert(clock::now() + longest);
            is_new
        });
        limited.unwrap_or(false)
    }

    /// Raised when a turn of the tenure is over; look again then.
    pub(crate) fn over_signal(&self) -> OwnedNotified {
        let over = self.tenure.over.get_or_init(Arc::default);
        over.clone().notified_owned()
    }

    /// Raises `over`, too, when the turn is over.
    pub(crate) fn also_tell(&self, over: &Arc<Notify>) {
        self.with_turn(|turn| {
            let told = &mut turn.extras.get_or_insert_default().also_told;
            told.retain(|over| over.strong_count() > 0);
            told.push(Arc::downgrade(over));
        });
    }

    /// Resolves when the manager admits no more callers.
    pub(crate) async fn closing(&self) {
        // A waiter must not own the manager, which ends with its last guard.
        let life = self.tenure.core.upgrade().map(|core| core.life.clone());
        if let Some(life) = life {
            life.closing().await;
        }
    }

    /// True once no guard shares the turn any more: the last one has left it, good or lost.
    pub(crate) fn is_left(&self) -> bool {
        !self.with_turn(|turn| turn.is_shared()).unwrap_or(false)
    }

    /// Returns how long the turn may still be relied on without a further renewal.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.tenure.state.lock();
        if state.has_turn(self.turn) {
            state.end().remaining()
        } else {
            Duration::ZERO
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", self.key())
            .field("holder", &self.holder())
            .field("turn", &self.turn)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
