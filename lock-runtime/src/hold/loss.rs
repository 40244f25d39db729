//! The loss of a tenure: when it counts as lost, and who is told. Only guards of the current turn are told: a turn that was
//! offered and not claimed, and a lock that was idle, are nobody's loss.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::tenure::{Stage, State, Tenure};
use super::{Core, Hold, Turn};
use crate::observe::metrics;
use crate::queue::Front;
use crate::release;
use crate::values::{Counted, Label, LockError, LostReason, Moment, clock};

/// A loss that is still to be announced.
pub(super) enum News {
    Turn {
        loss: Loss,
        front: Option<Front>,
        also_told: Vec<Weak<Notify>>,
        /// No caller had the turn yet: the count that a shutdown waits for.
        offered: Option<Counted>,
    },
    Idle {
        reason: LostReason,
        turn: Turn,
        /// Taken along until the state is unlocked: dropping the last `Arc<Core>` locks the states of idle tenures.
        core: Arc<Core>,
        /// A shutdown waits for the release to come.
        counted: Counted,
    },
}

impl Tenure {
    /// Ends a tenure whose time is over by `now`. Code that decides by the state calls this first, under the
    /// same lock, so an end and a renewal at the same time have an order.
    #[must_use = "announce it once the state is unlocked"]
    pub(super) fn expire(&self, state: &mut State, now: Moment) -> Option<News> {
        let reason = state.overdue(now)?;
        self.end(state, reason)
    }

    /// Ends the tenure as lost: the first reason counts, and what is over cannot be lost.
    #[must_use = "announce it once the state is unlocked"]
    pub(super) fn end(&self, state: &mut State, reason: LostReason) -> Option<News> {
        if matches!(state.stage, Stage::Idle { .. }) {
            // Otherwise the core is ending, and gives back what is idle.
            let core = self.core.upgrade()?;
            let counted = core.life.background.enter();
            let turn = state.stop_idling(self.ttl, clock::now())?;
            return Some(News::Idle {
                reason,
                turn,
                core,
                counted,
            });
        }
        let mut turn = match std::mem::replace(&mut state.stage, Stage::Leaving) {
            Stage::Held(turn) => Box::new(turn),
            stage => {
                state.stage = stage;
                return None;
            }
        };
        let offered = turn.offered.take();
        let loss = Loss {
            reason,
            label: turn.label,
            held_for: turn.granted_at.elapsed(),
            claimed: offered.is_none(),
        };
        let (front, also_told) = (turn.front.take(), turn.take_also_told());
        state.stage = Stage::Lost { turn, loss };
        Some(News::Turn {
            loss,
            front,
            also_told,
            offered,
        })
    }

    /// Announces a loss. Call it outside of the state's lock: it wakes others.
    pub(super) fn announce(self: &Arc<Tenure>, news: Option<News>) {
        match news {
            None => {}
            Some(News::Idle {
                reason,
                turn,
                core,
                counted: _counted,
            }) => {
                release::idle::ended(&core, self, turn, reason);
            }
            Some(News::Turn {
                loss,
                front,
                also_told,
                offered,
            }) => {
                let Loss { reason, label, .. } = loss;
                self.tell(&also_told);
                // This wakes the next local waiter.
                drop(front);
                metrics::ended(label, self.first_kind(), loss.held_for);
                match offered {
                    None => metrics::lost(label, self.key().kind(), reason),
                    // No guard will leave it, so it is given back to the store at once.
                    Some(_counted) => {
                        if let Some(core) = self.core.upgrade() {
                            release::clean_up(&core, self, reason);
                        }
                    }
                }
            }
        }
    }

    /// True once neither a turn nor the idle time is good any more. Compares the local deadline with the clock, and
    /// needs no timer.
    pub(crate) fn is_over(self: &Arc<Tenure>) -> bool {
        self.look(|state| !state.is_live())
    }

    /// Looks at the state, or changes it, after what is overdue by now has ended.
    pub(super) fn look<T>(self: &Arc<Tenure>, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let news = self.expire(&mut state, clock::now());
        let seen = look(&mut state);
        drop(state);
        self.announce(news);
        seen
    }

    /// Does the same as [`end`](Tenure::end), and announces it.
    pub(crate) fn lose(self: &Arc<Tenure>, reason: LostReason) {
        let news = self.end(&mut self.state.lock(), reason);
        self.announce(news);
    }

    /// Returns the loss of its turn. `None` if none was lost.
    pub(crate) fn lost_turn(&self) -> Option<Loss> {
        let state = self.state.lock();
        state.loss_of(state.turn)
    }

    /// Wakes the waiters for the end of a turn. Call it after the state was written, and outside of its lock.
    pub(super) fn tell(&self, also_told: &[Weak<Notify>]) {
        if let Some(over) = self.over.get() {
            over.notify_waiters();
        }
        for over in also_told.iter().filter_map(Weak::upgrade) {
            over.notify_waiters();
        }
    }
}

/// What the guards of a lost turn and the log are told of its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) reason: LostReason,
    pub(crate) label: Label,
    pub(crate) held_for: Duration,
    /// False if it was offered to a caller that did not take it in time.
    pub(crate) claimed: bool,
}

impl State {
    /// The loss of that turn.
    fn loss_of(&self, turn: u64) -> Option<Loss> {
        match &self.stage {
            Stage::Lost { loss, .. } if self.turn == turn => Some(*loss),
            _ => None,
        }
    }

    /// Whether that turn is good: it is the current one, and a caller has it or is to get it.
    pub(super) fn has_turn(&self, turn: u64) -> bool {
        self.turn == turn && matches!(self.stage, Stage::Held(_))
    }
}

impl Hold {
    /// Returns the loss of the turn, if it was lost.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.tenure.look(|state| state.loss_of(self.turn))
    }

    /// Returns the reason of the loss, for a caller that has just seen that its time is not over: reads no clock.
    pub(crate) fn known_loss(&self) -> Option<LostReason> {
        let state = self.tenure.state.lock();
        state.loss_of(self.turn).map(|loss| loss.reason)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.tenure.look(|state| state.has_turn(self.turn))
    }

    /// The loss as an error.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.loss()
            .map_or(Ok(()), |loss| Err(self.lost_error(loss)))
    }

    /// The error of a turn that was lost.
    pub(crate) fn lost_error(&self, loss: Loss) -> LockError {
        LockError::Lost {
            name: self.tenure.key.name().to_owned(),
            held_for: loss.held_for,
            reason: loss.reason,
            completed: false,
        }
    }
}
