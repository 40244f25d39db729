//! Guards join a turn and leave it. With the last one the turn ends, and what comes next is decided in the same step.

use std::sync::Arc;

use super::tenure::{Stage, State};
use super::{Core, Hold, Loss, Turn};
use crate::queue::{Front, KeyState, Shard, Successor};
use crate::values::{Counted, HoldOptions, Kind, LockError, Moment};

/// What a guard leaves behind.
#[expect(
    clippy::large_enum_variant,
    reason = "moved at the end of a turn and never kept: a box would cost each release an allocation"
)]
pub(crate) enum Left {
    /// Others still share the turn.
    Shared,
    /// The last writer left, and readers still share the turn: downgrade it. With the front of this process.
    Reading(Option<Front>),
    /// The turn was lost before; whether this was its last sharer.
    Lost { loss: Loss, last: bool },
    /// The turn was good, and has ended.
    Last(Turn, Next),
}

/// What comes after a turn that was good.
pub(crate) enum Next {
    /// A waiter of this process has the next turn, and is to be notified.
    Turn(Successor, Hold),
    /// The process keeps the lock, and no caller has it.
    Idle(IdleEnd),
    /// The tenure is over. Its release gives the lock back, or hands it over in the store.
    Release,
}

/// What ends an idle time.
pub(crate) enum IdleEnd {
    /// The watchdog, before the lease ends.
    Early,
    /// Something that is planned already.
    Planned,
    /// The release of a dropped guard, which is to be begun; or the watchdog, if the runtime does not come to it.
    Release,
}

/// A guard's share in a turn, when the guard ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// The kind as which it shares the turn: a read may share a write.
    pub(crate) kind: Kind,
    pub(crate) renewed: bool,
    /// The guard was dropped, and no other process is known to want the lock. The task that dropped it may come back before
    /// the lock is given back.
    pub(crate) returns: bool,
}

impl Hold {
    /// Counts one more sharer that wants the turn renewed. True if a renewal is due now: nobody wanted that before, and the
    /// watchdog's last request only looked at the hold. The watchdog counts from that look, so its next request may come
    /// after the lease has ended.
    pub(crate) fn add_renewer(&self) -> bool {
        let mut state = self.tenure.state.lock();
        let was_checked = state.checked;
        let Some(turn) = state.turn_mut() else {
            return false;
        };
        let is_due = turn.add_renewer() && was_checked;
        // A check that is under way does not extend the lease: another request must follow it.
        turn.lengthen |= is_due;
        is_due
    }

    /// Adds a sharer with its options; returns whether the lease is to be lengthened, so that the watchdog should look
    /// at it now. `None` if the turn has ended meanwhile.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the turn is lost, and somebody still shares it.
    pub(crate) fn share(
        &self,
        hold_options: HoldOptions,
        kind: Kind,
    ) -> Result<Option<bool>, LockError> {
        let shared = self.tenure.look(|state| {
            let is_current = state.turn == self.turn;
            match &mut state.stage {
                Stage::Held(turn) if is_current && (kind != Kind::Write || turn.is_written()) => {
                    turn.join(kind);
                    let longer = hold_options.ttl > turn.ttl;
                    if longer {
                        turn.ttl = hold_options.ttl;
                        turn.lengthen = true;
                    }
                    Ok(Some(longer))
                }
                Stage::Lost { turn, loss } if is_current && turn.is_shared() => Err(*loss),
                _ => Ok(None),
            }
        });
        shared.map_err(|loss| self.lost_error(loss))
    }

    /// Offers the turn, which one guard shares, to a caller that was not polled yet. The count comes back if the turn was
    /// lost meanwhile.
    pub(crate) fn offer(&self, counted: Counted) -> Result<(), Counted> {
        match &mut self.tenure.state.lock().stage {
            Stage::Held(turn) => {
                turn.part(self.tenure.key.kind(), false);
                turn.offered = Some(counted);
                Ok(())
            }
            _ => Err(counted),
        }
    }

    /// The caller that the turn was offered to takes it, and is the first to share it. `None` if the turn was lost
    /// meanwhile. The count of the offer comes back.
    pub(crate) fn claim(&self) -> Option<Counted> {
        let kind = self.tenure.key.kind();
        self.tenure.look(|state| match &mut state.stage {
            Stage::Held(turn) if state.turn == self.turn => {
                turn.offered.take().inspect(|_| turn.join(kind))
            }
            _ => None,
        })
    }

    /// If this sharer is the last, the turn ends and what follows it begins, in one step.
    pub(crate) fn leave(&self, core: &Core, share: Share, now: Moment) -> Left {
        let tenure = &self.tenure;
        let mut state = tenure.state.lock();
        let mut queues = None;
        let is_last_at_the_front = state
            .turn_mut()
            .is_some_and(|turn| turn.is_last_at_the_front());
        if is_last_at_the_front {
            // The queues are locked before a tenure's state.
            drop(state);
            queues = Some(core.queues.lock(&tenure.key));
            state = tenure.state.lock();
        }
        let news = tenure.expire(&mut state, now);
        let part = |turn: &mut Turn| turn.part(share.kind, share.renewed);
        let last = state.turn_mut().is_some_and(part);
        let mut left = match std::mem::replace(&mut state.stage, Stage::Leaving) {
            Stage::Held(mut turn) if last => {
                let queues = queues.as_deref_mut();
                let next = self.next(core, &mut state, queues, &mut turn, share.returns, now);
                Left::Last(turn, next)
            }
            stage => {
                state.stage = stage;
                match &mut state.stage {
                    Stage::Held(turn) if share.kind == Kind::Write => self.after_a_writer(turn),
                    Stage::Lost { loss, .. } => Left::Lost { loss: *loss, last },
                    _ => Left::Shared,
                }
            }
        };
        drop(state);
        drop(queues);
        tenure.announce(news);
        if let Left::Last(turn, _) = &mut left {
            tenure.tell(&turn.take_also_told());
        }
        left
    }

    /// Decides what comes after a good turn that no guard shares any more. The stage is [`Stage::Leaving`] if nothing else
    /// comes: then no turn begins later.
    fn next(
        &self,
        core: &Core,
        state: &mut State,
        queues: Option<&mut Shard>,
        turn: &mut Turn,
        returns: bool,
        now: Moment,
    ) -> Next {
        let tenure = &self.tenure;
        if let Some(until) = turn.covered_until(now) {
            // The process keeps nothing after that time, and no caller follows before it.
            turn.keep_for = None;
            state.stage = Stage::Covering { until };
        }
        let Some(queues) = queues else {
            return Next::Release;
        };
        let Some(front) = turn.front.take() else {
            return Next::Release;
        };
        if state.wanted {
            turn.keep_for = None;
            queues.change_at(&front, |key| key.slice().note_wanted(now));
        }
        // Not after a nested request for a longer lease, nor while the key is to stay taken, nor in a manager that closes.
        let is_whole = turn.ttl == tenure.ttl && matches!(state.stage, Stage::Leaving);
        let goes_on = is_whole && core.life.is_open();
        let idle_until = match turn.keep_for {
            _ if !goes_on => None,
            // Turn 0 of a keeper is nobody's: the hand-over has just asked the store.
            Some(keep_for) => {
                let has_tokens = state.turn == 0 || !state.is_used_up();
                (has_tokens && tenure.holder().keeps()).then(|| now + keep_for)
            }
            None if returns && !state.wanted && !state.is_used_up() => {
                let knows_nobody = queues.change_at(&front, |key| key.slice().knows_nobody());
                state.free_until(now).filter(|_| knows_nobody == Some(true))
            }
            None => None,
        };
        if let Some(until) = idle_until
            && queues.keep(&front, tenure, now)
        {
            let label = turn.label;
            state.stage = Stage::Idle {
                until,
                front,
                label,
            };
            return Next::Idle(match turn.keep_for {
                Some(_) if state.deadline.has_reached(until) => IdleEnd::Early,
                None if !std::mem::replace(&mut state.ends_soon, true) => IdleEnd::Release,
                _ => IdleEnd::Planned,
            });
        }
        if goes_on && state.free_until(now).is_some() {
            let mut following = None;
            let suits = |options: &HoldOptions| {
                following = state.next_turn(tenure.ttl, options, now);
                following.is_some()
            };
            let successor = queues.change_at(&front, |key| key.next_if(suits)).flatten();
            if let Some((successor, mut turn)) = successor.zip(following) {
                queues.change_at(&front, |key| key.held_by(turn.label.lock));
                turn.front = Some(front);
                turn.offered = Some(core.life.under_way.enter());
                let token = turn.token;
                state.begin(turn);
                let hold = Hold::new(tenure.clone(), state.turn, token);
                return Next::Turn(successor, hold);
            }
        }
        let nobody_waits = queues.change_at(&front, KeyState::held_no_more);
        turn.nobody_waits = nobody_waits.unwrap_or(true);
        turn.front = Some(front);
        Next::Release
    }

    /// A guard goes on as a reader. With the last writer, so does the tenure.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub(crate) fn stop_writing(&self) -> Result<Left, LockError> {
        self.check()?;
        if let Stage::Held(turn) = &mut self.tenure.state.lock().stage {
            turn.stop_writing();
            return Ok(self.after_a_writer(turn));
        }
        // Lost since the look.
        self.check().map(|()| Left::Shared)
    }

    /// A writer stopped writing, and a guard goes on reading: the last writer makes the tenure a read's.
    fn after_a_writer(&self, turn: &mut Turn) -> Left {
        if turn.is_written() {
            return Left::Shared;
        }
        // From here on it is renewed and released as a read, which knows both forms in the store.
        let tenure = &self.tenure;
        let _ = tenure
            .downgraded
            .set(Arc::new(tenure.key.as_kind(Kind::Read)));
        Left::Reading(turn.front.take())
    }
}

#[cfg(test)]
mod tests;
