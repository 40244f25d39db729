//! What the store knows of a lock that this process has: one holder id at one key, and until when it may be believed.
//!
//! A [`Tenure`] begins with the store's grant and ends when the lock is lost, or when its release is about to be sent. In
//! between, callers of this process have the lock one after the other, each for one [`Turn`], and the store is not asked:
//! it knows the holder that it knew before. The watchdog renews the tenure while it is idle, and in turns whose guards want
//! that.
//!
//! Invariants, all under the lock of the tenure's state:
//!
//! - Turns are numbered. A [`Hold`](super::Hold) names its turn, and is over once the tenure is in another turn or stage.
//!   So nothing passes from one turn to the next but what the tenure itself has.
//! - No turn begins after [`Stage::Leaving`], [`Stage::Covering`] or [`Stage::Lost`]: from there on, the release of the
//!   holder id may be sent, or the store may have given the lock to another holder.
//! - A turn grants no time. Every turn is believed until `deadline`, which only an answer of the store moves.
//! - The front of the local queue is with the turn, or the queue has the tenure itself ([`Stage::Idle`]).
//!
//! A turn that ends and the next one, or the idle time, are one step: under the queues' lock and the state's, in this
//! order. So a renewal, a forced release or a loss meets one turn or the other, and never the time between them.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::turn::Turn;
use super::{Core, Hold, Loss};
use crate::backend::{Granted, HoldRef, LAST_SENT, Renewal, Renewed, Spare};
use crate::queue::{Entered, Front};
use crate::sync::Modelled;
use crate::values::{
    HoldOptions, HolderId, Key, Kind, Label, LostReason, Moment, TokenRange, Ttl, clock,
};

/// See the module. Shared by the guards of a call chain, their views, the watchdog, and the local queue while it is idle.
pub(crate) struct Tenure {
    pub(super) key: Arc<Key>,
    /// The key as that of a read lock, once a write hold has become one. Set under the state's lock.
    pub(super) downgraded: OnceLock<Arc<Key>>,
    holder: HolderId,
    permits: u32,
    /// The lease that the store granted.
    pub(super) ttl: Ttl,
    /// Gives back a lock that is lost while no caller has it. Notifies holders when the manager closes.
    pub(super) core: Weak<Core>,
    pub(super) state: Modelled<State>,
    /// Raised when a turn is over. The state is written before it is raised. A waiter makes it before it looks at the
    /// state: a waiter that comes after the end does not wait.
    pub(super) over: OnceLock<Arc<Notify>>,
}

pub(super) struct State {
    /// Until when the tenure may be believed: `sent_at + ttl − margin` of the last confirmed request.
    pub(super) deadline: Moment,
    /// The end of the longest lease that the store was asked for, whether it has answered or not.
    leased_until: Moment,
    /// The number of the current turn, or of the last one.
    pub(super) turn: u64,
    pub(super) stage: Stage,
    /// The store has only reserved the lock: its lease is still to be asked for.
    pub(super) unleased: bool,
    /// The watchdog's last request did not extend the lease.
    pub(super) checked: bool,
    /// What the store has set aside for further turns. Boxed, because few tenures have more than one turn.
    pub(super) allowance: Option<Box<TurnAllowance>>,
    /// Another process has asked for the lock, which this process keeps: it is given back when its turn ends.
    pub(super) wanted: bool,
    /// A task is about to give the lock back, because a guard was dropped, unless a caller comes before.
    pub(super) ends_soon: bool,
    /// Another task gives the holder id back as well, so a release that finds nothing has lost nothing.
    undone: bool,
}

/// Who has the lock.
pub(super) enum Stage {
    /// Guards of one caller, or of its call chain; or a caller that is to get the lock ([`Turn::offered`]).
    Held(Turn),
    /// No caller: the process keeps the lock for its next caller (`keep_for`), or a guard was dropped and its release is
    /// about to be sent. The tenure lies in the queue of its key, with the front of that queue and the label of the last
    /// turn.
    Idle {
        until: Moment,
        front: Front,
        label: Label,
    },
    /// No caller, but the key stays taken (`min_hold`).
    Covering { until: Moment },
    /// No caller: the lock is given back or handed over in the store.
    Leaving,
    /// Guards still have to leave the turn. Boxed, because few turns are lost.
    Lost { turn: Box<Turn>, loss: Loss },
}

/// The permission for turns that begin without the store.
#[derive(Debug)]
pub(crate) struct TurnAllowance {
    /// The tokens of these turns; `None` if they need none.
    tokens: Option<TokenRange>,
    /// Until when the lock may go to waiters of this process. `None` for a lock that is kept: it goes to no waiter, but
    /// to the first caller after an idle time, however long that is.
    free_until: Option<Moment>,
}

impl TurnAllowance {
    /// `None` if nothing was set aside.
    pub(crate) fn new(spare: Spare, free_until: Option<Moment>) -> Option<TurnAllowance> {
        let tokens = match spare {
            Spare::Nothing => return None,
            Spare::Untokened => None,
            Spare::Tokens(tokens) => Some(tokens),
        };
        Some(TurnAllowance { tokens, free_until })
    }
}

impl State {
    /// The current turn: one that guards share, or that is offered to a caller.
    pub(super) fn turn_mut(&mut self) -> Option<&mut Turn> {
        match &mut self.stage {
            Stage::Held(turn) => Some(turn),
            Stage::Lost { turn, .. } => Some(turn),
            Stage::Idle { .. } | Stage::Covering { .. } | Stage::Leaving => None,
        }
    }

    /// Whether the lock is this process's, in a turn or idle: the watchdog has it then.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Held(_) | Stage::Idle { .. })
    }

    /// The moment at which the stage ends, the deadline aside: by `max_hold`, or by `keep_for`.
    fn stage_end(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Held(turn) => turn.max_until(),
            Stage::Idle { until, .. } => Some(*until),
            Stage::Covering { .. } | Stage::Leaving | Stage::Lost { .. } => None,
        }
    }

    pub(super) fn end(&self) -> Moment {
        let stage_end = self.stage_end();
        stage_end.map_or(self.deadline, |end| end.earlier(self.deadline))
    }

    /// Returns why the tenure is over by `now`, if its time is over.
    pub(super) fn overdue(&self, now: Moment) -> Option<LostReason> {
        if !self.is_live() {
            None
        } else if self.stage_end().is_some_and(|end| now.has_reached(end)) {
            Some(LostReason::MaxHold)
        } else if now.has_reached(self.deadline) {
            Some(LostReason::Expired)
        } else {
            None
        }
    }

    pub(super) fn is_good(&self, now: Moment) -> bool {
        self.is_live() && self.overdue(now).is_none()
    }

    /// Takes in a confirmation of the holder by the store.
    fn confirm(&mut self, asked: &Renewal, sent_at: Moment) {
        if let Some(ttl) = asked.ttl {
            let (now, deadline) = (clock::now(), sent_at + ttl.trusted());
            // Compares what is left, not the moments: after a suspension, the clocks may order these differently.
            if deadline - now > self.deadline - now {
                self.deadline = deadline;
            }
            match &mut self.stage {
                // A renewal by hand may be for less than the lease that is still to be asked for.
                Stage::Held(turn) if ttl < turn.ttl => {}
                Stage::Held(turn) => {
                    turn.lengthen = false;
                    self.unleased = false;
                }
                _ => self.unleased = false,
            }
        }
    }

    /// Returns another turn with these options, if it can begin without the store. `ttl`: the lease that the store
    /// granted. A request for a shorter lease gets none, because a crash would block the key for longer than it asked
    /// for. Nor does any request if too little of the lease is left: its caller would give it back, and lose its place
    /// in the queue.
    pub(super) fn next_turn(
        &mut self,
        ttl: Ttl,
        options: &HoldOptions,
        now: Moment,
    ) -> Option<Turn> {
        let left = self.deadline - now;
        // More is left if somebody has renewed by hand, for longer.
        let suits = options.ttl == ttl && (ttl.least_useful()..=ttl.trusted()).contains(&left);
        let allowance = self.allowance.as_mut().filter(|_| suits)?;
        let mut token = None;
        if options.fenced {
            let tokens = allowance.tokens.as_mut()?;
            token = Some(match &self.stage {
                // One task takes tokens faster than the clock goes.
                Stage::Idle { .. } => tokens.take(now).or_else(|| tokens.take_soon())?,
                _ => tokens.take(now)?,
            });
        }
        Some(Turn::new(options, token, None, now))
    }

    /// Returns until when the lock may go to waiters of this process, if that is later than `now`.
    pub(super) fn free_until(&self, now: Moment) -> Option<Moment> {
        let free_until = self.allowance.as_ref()?.free_until;
        free_until.filter(|until| !now.has_reached(*until))
    }

    /// Whether turns have used all tokens that were set aside: it is time to ask the store for more.
    pub(super) fn is_used_up(&self) -> bool {
        let allowance = self.allowance.as_ref();
        let tokens = allowance.and_then(|allowance| allowance.tokens.as_ref());
        tokens.is_some_and(TokenRange::is_empty)
    }

    /// Ends the idle time: the lock is to be given back, or taken by the next turn. `None` if the tenure is not idle.
    pub(super) fn stop_idling(&mut self, ttl: Ttl, now: Moment) -> Option<Turn> {
        match std::mem::replace(&mut self.stage, Stage::Leaving) {
            Stage::Idle { front, label, .. } => Some(Turn::of_nobody(label, ttl, Some(front), now)),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// The new number ends every [`Hold`] of the turn before.
    pub(super) fn begin(&mut self, turn: Turn) {
        self.turn += 1;
        self.stage = Stage::Held(turn);
    }
}

impl Tenure {
    /// Begins with what the store has just granted, in the first turn, which one guard shares. The turn has this process's
    /// `front`, if holds of this kind own it.
    pub(crate) fn begin(
        core: Weak<Core>,
        key: Arc<Key>,
        front: Option<Front>,
        holder: HolderId,
        options: &HoldOptions,
        granted: Granted,
        allowance: Option<TurnAllowance>,
    ) -> Hold {
        let token = granted.token;
        let mut turn = Turn::new(options, token, front, granted.sent_at);
        turn.join(key.kind());
        let unleased = granted.reserved_ms.is_some();
        let mut believed_for = options.ttl.trusted();
        if let Some(ms) = granted.reserved_ms {
            believed_for = believed_for.min(Duration::from_millis(ms.get().into()));
        }
        let state = State {
            deadline: granted.sent_at + believed_for,
            leased_until: granted.sent_at + options.ttl.duration(),
            turn: 0,
            stage: Stage::Held(turn),
            unleased,
            checked: false,
            allowance: allowance.map(Box::new),
            wanted: false,
            ends_soon: false,
            undone: false,
        };
        let tenure = Tenure {
            key,
            downgraded: OnceLock::new(),
            holder,
            permits: options.permits,
            ttl: options.ttl,
            core,
            state: Modelled::new(state),
            over: OnceLock::new(),
        };
        Hold::new(Arc::new(tenure), 0, token)
    }

    /// The key, as of the kind that the tenure has now.
    pub(crate) fn key(&self) -> &Arc<Key> {
        self.downgraded.get().unwrap_or(&self.key)
    }

    /// The kind that the store granted. A write that became a read is still a write in the counts.
    pub(crate) fn first_kind(&self) -> Kind {
        self.key.kind()
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.holder
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    /// Returns what to give back to the store in the end.
    pub(crate) fn hold_ref(&self) -> HoldRef<'_> {
        HoldRef {
            key: self.key(),
            holder: self.holder,
            permits: self.permits,
            listed: false,
        }
    }

    /// The lease that the current turn wants.
    pub(crate) fn ttl(&self) -> Ttl {
        let mut state = self.state.lock();
        state.turn_mut().map_or(self.ttl, |turn| turn.ttl)
    }

    /// Until when the tenure may be believed, `max_hold` aside: what the store's lease allows.
    pub(crate) fn deadline(&self) -> Moment {
        self.state.lock().deadline
    }

    /// The end of the longest lease that the store was asked for. Until then, a release without an answer is repeated.
    pub(crate) fn leased_until(&self) -> Moment {
        self.state.lock().leased_until
    }

    /// Returns the moment at which the turn, or the idle time, is over if nothing else happens. `None` once the tenure is
    /// over.
    pub(crate) fn end_if_live(&self) -> Option<Moment> {
        let state = self.state.lock();
        state.is_live().then(|| state.end())
    }

    /// True while the tenure is neither over nor past its end. Changes nothing, unlike [`is_over`](Tenure::is_over).
    pub(crate) fn is_good_at(&self, now: Moment) -> bool {
        self.state.lock().is_good(now)
    }

    /// Returns `true` if the tenure is over and nothing keeps its key: the caller gives the holder id back, too. The release
    /// is perhaps not sent yet, and must not take that for a loss.
    pub(crate) fn undoes(&self) -> bool {
        let mut state = self.state.lock();
        state.undone = match state.stage {
            Stage::Held(_) | Stage::Idle { .. } => false,
            Stage::Covering { until } => until.has_passed(),
            Stage::Leaving | Stage::Lost { .. } => true,
        };
        state.undone
    }

    pub(crate) fn is_undone(&self) -> bool {
        self.state.lock().undone
    }

    /// True until the store has confirmed a lease, if it has only reserved the lock so far.
    pub(crate) fn is_unleased(&self) -> bool {
        self.state.lock().unleased
    }

    /// Returns the lease by which the watchdog plans its requests. It is short while the store has only reserved the lock,
    /// that of the grant until a longer one is confirmed, and not long for a read, whose lease other readers may shorten.
    pub(crate) fn paced_by(&self) -> Ttl {
        let mut state = self.state.lock();
        let ttl = match state.turn_mut() {
            Some(turn) if turn.lengthen => turn.ttl.min(self.ttl),
            Some(turn) => turn.ttl,
            None => self.ttl,
        };
        if state.unleased {
            ttl.min(Ttl::SHORT)
        } else if self.key().kind() == Kind::Read {
            ttl.min(Ttl::OF_SHARED)
        } else {
            ttl
        }
    }

    /// A nested request wants a longer lease than the last renewal asked for.
    pub(crate) fn is_to_be_lengthened(&self) -> bool {
        let mut state = self.state.lock();
        state.turn_mut().is_some_and(|turn| turn.lengthen)
    }

    /// Returns the hold of the current turn, if a caller has the lock.
    pub(crate) fn hold(self: &Arc<Tenure>) -> Option<Hold> {
        let state = self.state.lock();
        match &state.stage {
            Stage::Held(turn) => Some(Hold::new(self.clone(), state.turn, turn.token)),
            _ => None,
        }
    }

    /// Returns the request for a renewal. Without a lease, the store only says whether it knows the holder.
    pub(crate) fn renewal(&self, ttl: Option<Ttl>) -> Renewal {
        let call = self.call_timeout();
        self.asks_for(&mut self.state.lock(), ttl, call)
    }

    /// Call it with no tenure's state locked: dropping the last `Arc<Core>` locks those of idle tenures.
    fn call_timeout(&self) -> Duration {
        let core = self.core.upgrade();
        core.map(|core| core.options.call_timeout)
            .unwrap_or_default()
    }

    fn asks_for(&self, state: &mut State, ttl: Option<Ttl>, call: Duration) -> Renewal {
        if let Some(ttl) = ttl {
            let latest = clock::now() + call * LAST_SENT + ttl.duration();
            state.leased_until = state.leased_until.later(latest);
        }
        Renewal {
            key: self.key().clone(),
            holder: self.holder,
            permits: self.permits,
            ttl,
            waits: false,
        }
    }

    /// Returns the watchdog's request to the store, if the tenure is good: once it is over, its holder id may be released.
    pub(crate) fn due_renewal(&self, now: Moment) -> Option<Renewal> {
        let call = self.call_timeout();
        let mut state = self.state.lock();
        if !state.is_good(now) {
            return None;
        }
        let lease = match &state.stage {
            Stage::Held(turn) => turn.wanted_lease(),
            Stage::Idle { .. } => Some(self.ttl),
            _ => None,
        };
        state.checked = lease.is_none();
        Some(self.asks_for(&mut state, lease, call))
    }

    /// Takes in the answer to a renewal that was sent at `sent_at`, whichever turn asked for it: it is about the holder
    /// id. An answer that confirms the tenure after its end comes too late: `is_held` has returned false already. Returns
    /// the answer, or [`Renewed::Unknown`] if it says nothing about the tenure as it is now.
    pub(crate) fn answered(
        self: &Arc<Tenure>,
        asked: &Renewal,
        answer: Renewed,
        sent_at: Moment,
    ) -> Renewed {
        let mut state = self.state.lock();
        // It was asked for as a write and meanwhile became a read, or its release was sent beside the renewal.
        let is_outdated = asked.key.kind() != self.key().kind();
        let answer = match answer {
            Renewed::NotHeld if is_outdated || matches!(state.stage, Stage::Leaving) => {
                Renewed::Unknown
            }
            answer => answer,
        };
        let mut news = self.expire(&mut state, clock::now());
        if state.is_live() {
            match answer {
                Renewed::Held => state.confirm(asked, sent_at),
                Renewed::NotHeld => news = self.end(&mut state, LostReason::Refused),
                Renewed::Unknown | Renewed::LeftOut => {}
            }
        }
        drop(state);
        self.announce(news);
        answer
    }

    /// A caller of this process comes while no caller has the lock: its turn begins, if the tenure suits it. `None` if the
    /// tenure is over: the code that ended it takes it out of the queue, and gives it back. Under the queues' lock.
    pub(crate) fn take(self: &Arc<Tenure>, options: &HoldOptions, now: Moment) -> Option<Entered> {
        // The caller has one, so this is not the last.
        let core = self.core.upgrade()?;
        let mut state = self.state.lock();
        if !matches!(state.stage, Stage::Idle { .. }) {
            return None;
        }
        // Some of the idle lease is over, and a caller with a fixed lease needs a whole one.
        let wants_renewal = options.renewed || options.keep_for.is_some();
        let is_good = wants_renewal && state.overdue(now).is_none();
        let turn = is_good.then(|| state.next_turn(self.ttl, options, now));
        let before = state.stop_idling(self.ttl, now)?;
        let Some(mut turn) = turn.flatten() else {
            return Some(Entered::Unsuited(self.clone(), Box::new(before)));
        };
        turn.front = before.front;
        turn.join(self.key.kind());
        let token = turn.token;
        state.begin(turn);
        let hold = Hold::new(self.clone(), state.turn, token);
        // From this moment a shutdown finds nothing idle here any more.
        Some(Entered::Held(hold, core.life.under_way.enter()))
    }

    /// The task that gives the lock back after a guard was dropped runs. `None` if a caller has come before.
    pub(crate) fn ends_now(&self, now: Moment) -> Option<Turn> {
        let mut state = self.state.lock();
        state.ends_soon = false;
        state.stop_idling(self.ttl, now)
    }

    /// Ends the idle time: the lock is to be given back. `None` if the tenure is not idle.
    pub(crate) fn stop_idling(&self, now: Moment) -> Option<Turn> {
        self.state.lock().stop_idling(self.ttl, now)
    }

    /// The tenure is over, and its release is to be sent. Returns the tokens that no turn has had, which go back with the
    /// lock.
    pub(crate) fn unused_tokens(&self) -> Option<TokenRange> {
        self.state.lock().allowance.take()?.tokens?.unused()
    }

    /// Returns `true` once another process wants the lock, which this one keeps.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state.lock().wanted
    }

    /// Another process wants the lock, which this one keeps: it is given back at once, or when its turn has ended.
    pub(crate) fn give_up(self: &Arc<Tenure>) {
        let mut state = self.state.lock();
        state.wanted = true;
        let news = match &state.stage {
            // Nobody is told the reason. It is one for which the lock is given back.
            Stage::Idle { .. } => self.end(&mut state, LostReason::MaxHold),
            _ => None,
        };
        drop(state);
        self.announce(news);
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("key", self.key())
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
