//! The lock goes to the next waiter of this process: without a request in a tenure, or with one request that begins the next
//! tenure.

use std::time::Duration;

use super::{TenureRelease, Work, idle, undo_later};
use crate::backend::{Fault, FurtherTurns, HandedOver, Released};
use crate::hold::{Core, HoldHandle, Offer, TurnAllowance};
use crate::observe::metrics;
use crate::queue::{Front, Successor, Ticket};
use crate::values::{HoldOptions, Key, Kind, LockError, SPARE_TOKENS, clock};

/// Returns the permission for further turns in the tenure that the store has just granted, if the terms give one.
pub(crate) fn allow_turns(
    core: &Core,
    front: &Front,
    terms: FurtherTurns,
) -> Option<TurnAllowance> {
    let FurtherTurns { others, spare } = terms;
    let notice_time = core.backend.notice_time(front.key(), Duration::ZERO);
    let until = front.slice(|slice| slice.granted(others, notice_time, clock::now()));
    TurnAllowance::new(spare, Some(until?))
}

/// Offers the lock to the successor.
pub(super) fn give(core: &Core, kind: Kind, successor: Successor, offer: Offer) {
    // A manager that closes drops both: the successor's ticket closes, and the lock is given back.
    if core.life.is_open() {
        let label = successor.hold_options.label;
        match successor.give(Ticket::Held(offer)) {
            None => metrics::handed_over(label, kind),
            // The waiter has just left, and the lock goes to the next one. That is a task, because a thousand waiters that
            // leave would otherwise be a thousand nested calls.
            Some(ticket) => core.life.spawn(async move { drop(ticket) }),
        }
    }
}

/// The holder that follows in the store: a waiter of this process, or no caller, if the process keeps the lock.
pub(super) struct Following {
    options: HoldOptions,
    waiter: Option<Successor>,
}

impl Following {
    /// The lock was not handed over, so the next caller asks the store.
    fn inherits_nothing(self, front: Front) {
        match self.waiter {
            Some(successor) => drop(successor.give(Ticket::Front(front))),
            None => drop(front),
        }
    }
}

impl Work {
    /// Returns the holder that gets the lock without a request of its own, if there is one. After a guard was dropped, a
    /// caller may have come since, often the task that dropped it.
    pub(super) fn next(&mut self, is_dropped: bool) -> Option<Following> {
        if is_dropped && self.turn.nobody_waits && self.may_return() {
            self.turn.nobody_waits = false;
        }
        // What this process keeps and another one has asked for goes to that one first.
        if self.tenure.is_wanted() || self.turn.nobody_waits && self.turn.keep_for.is_none() {
            return None;
        }
        let front = self.turn.front.as_ref()?;
        if !self.core.backend.traits().hands_over {
            return None;
        }
        if let Some(successor) = front.successor() {
            return Some(Following {
                options: successor.hold_options,
                waiter: Some(successor),
            });
        }
        let keep_for = self.turn.keep_for.filter(|_| self.core.life.is_open());
        // Callers that wait although the slice is over come after other processes.
        let may_keep = front.slice(|slice| slice.may_keep(self.left_at));
        let keeps = keep_for.is_some() && may_keep == Some(true) && front.waiters() == 0;
        keeps.then(|| Following {
            options: HoldOptions {
                ttl: self.turn.ttl,
                renewed: true,
                fenced: self.turn.token.is_some(),
                max_hold: None,
                keep_for,
                permits: self.tenure.permits(),
                label: self.turn.label,
            },
            waiter: None,
        })
    }

    /// Returns `true` if a caller that has come since the guard was dropped may have the lock before it is given back.
    fn may_return(&self) -> bool {
        let (core, key) = (&self.core, self.tenure.key());
        let held_for = self.left_at - self.turn.granted_at;
        let notice_time = core.backend.notice_time(key, held_for);
        let front = self.turn.front.as_ref();
        let may =
            front.and_then(|front| front.slice(|slice| slice.may_return(held_for, notice_time)));
        may == Some(true) && !self.requests.unanswered && !core.is_wanted(key, self.tenure.holder())
    }
}

impl TenureRelease {
    /// Makes the next holder the holder at the store, with one request. It always runs to its end.
    pub(super) async fn hand_over(mut self, next: Following) -> Result<(), LockError> {
        let Some(work) = &mut self.work else {
            return Ok(());
        };
        let core = work.core.clone();
        let Some(front) = work.turn.front.take() else {
            return Ok(());
        };
        let (key, from) = (front.key().clone(), work.tenure.holder());
        // The stores hand over whatever they are asked to. No other kind has a front while it is held.
        debug_assert!(matches!(
            key.kind(),
            Kind::Mutex | Kind::Fenced | Kind::Write
        ));
        let options = next.options;
        let lease = options.ttl.duration();
        let (to, hold_ref, handed) = loop {
            let (to, spare) = match (&next.waiter, key.kind()) {
                (None, Kind::Fenced) => (core.ids.fresh_keeper(), idle::SPARE_COUNTS),
                (None, _) => (core.ids.fresh_keeper(), SPARE_TOKENS),
                // Its tokens count holds: an unused token is a gap that people see.
                (_, Kind::Fenced) => (core.ids.fresh(), front.waiters().min(SPARE_TOKENS)),
                _ => (core.ids.fresh(), SPARE_TOKENS),
            };
            let call = core.acquire_request(&key, to, &options, clock::now());
            let hold_ref = call.hold_ref;
            let handed = core.backend.hand_over(from, call, spare).await;
            // No request was sent, for the connection is newer than the id. This repeats only while new ones are opened.
            if !matches!(handed, Err(Fault::Outdated)) {
                break (to, hold_ref, handed);
            }
        };
        let fault = match handed {
            Ok(HandedOver::Done(granted, mut terms)) => {
                let readers = readers_of(&core, &key);
                terms.others = terms.others.map(|others| others + readers);
                self.work = None;
                match next.waiter {
                    None => idle::keep(&core, front, to, options, granted, terms),
                    Some(successor) => {
                        let allowance = allow_turns(&core, &front, terms);
                        let handle = HoldHandle::admit(
                            &core,
                            &key,
                            Some(front),
                            to,
                            options,
                            granted,
                            allowance,
                        );
                        give(&core, key.kind(), successor, handle.offered());
                    }
                }
                return Ok(());
            }
            Ok(HandedOver::NotHeld) => {
                next.inherits_nothing(front);
                return self.conclude(Ok(Released::NotHeld));
            }
            // The old holder has released the lock, and the backend gives back the votes for the new holder.
            Err(fault @ Fault::TooFew(_)) => {
                front.heard_from_store(Some(&fault));
                self.work = None;
                next.inherits_nothing(front);
                return Ok(());
            }
            Err(fault) => fault,
        };
        let unknown = matches!(fault, Fault::Unknown(_));
        next.inherits_nothing(front);
        work.requests.unanswered |= unknown;
        // First the old holder is released, then the new one. So neither is left in the store, whichever of them it has, and
        // however late the lost request arrives.
        let outcome = self.give_back().await;
        if unknown {
            undo_later(&core, &key, hold_ref, clock::now() + lease);
        }
        outcome
    }
}

/// Returns one if readers of this process wait beside the writers: they are in another queue, and count as another process.
fn readers_of(core: &Core, key: &Key) -> u64 {
    u64::from(key.kind() == Kind::Write && core.queues.is_open(&key.as_kind(Kind::Read)))
}
