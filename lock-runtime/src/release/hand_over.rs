//! The lock goes to the next waiter of this process: without the store while a tenure lasts, else in one round trip.

use tokio::sync::oneshot;

use super::{Release, Work, idle, undo};
use crate::backend::{Fault, HandedOver, Released, TenureTerms};
use crate::hold::{Core, HoldHandle, Offer, Reserved};
use crate::observe::metrics;
use crate::queue::{Head, Successor, Ticket};
use crate::values::{HoldOptions, Key, Kind, LockError, SPARE_TOKENS, clock};

/// What the store has set aside for further turns of what it has just granted, if the terms allow any.
pub(crate) fn reserve(core: &Core, head: &Head, terms: TenureTerms) -> Option<Reserved> {
    let TenureTerms { strangers, spare } = terms;
    let round_trip = core.backend.round_trip(head.key());
    let until = head.slice(|slice| slice.tenure_begins(strangers, round_trip));
    Reserved::new(spare, Some(until?))
}

/// Tells the successor that the lock, which is of that kind, is offered to it.
pub(super) fn give(core: &Core, kind: Kind, successor: Successor, offer: Offer) {
    metrics::handed_over(successor.hold_options.label, kind);
    // A manager that closes drops both: the successor is told, and the lock is given back.
    if core.life.is_open() {
        let refused = successor.give(Ticket::Held(offer));
        // That waiter has just left, and the lock goes on from here. In a task: a thousand who leave would otherwise be
        // a thousand calls deep.
        if let Some(ticket) = refused {
            core.life.spawn(async move { drop(ticket) });
        }
    }
}

/// The holder that follows in the store: a waiter of this process, or none of its callers, for whom the lock is kept.
pub(super) struct Following {
    options: HoldOptions,
    waiter: Option<Successor>,
}

impl Following {
    /// The lock was not handed over: who is next asks the store.
    fn inherits_nothing(self, head: Head) {
        match self.waiter {
            Some(successor) => drop(successor.give(Ticket::Head(head))),
            None => drop(head),
        }
    }
}

impl Work {
    /// Who has the lock next without asking for it.
    pub(super) fn next(&self) -> Option<Following> {
        if self.turn.nobody_waits && self.turn.keep_for.is_none() {
            return None;
        }
        self.core.backend.hand_off()?;
        let head = self.turn.head.as_ref()?;
        if let Some(successor) = head.successor() {
            return Some(Following {
                // It is renewed once its caller has taken it.
                options: HoldOptions {
                    renewed: false,
                    ..successor.hold_options
                },
                waiter: Some(successor),
            });
        }
        let keep_for = self.turn.keep_for.filter(|_| self.core.life.is_open());
        // Those who wait although the slice is over come after others.
        let may_keep = head.slice(|slice| slice.may_keep(self.left_at));
        let keeps = keep_for.is_some() && may_keep == Some(true) && head.waiters() == 0;
        keeps.then(|| Following {
            options: HoldOptions {
                ttl: self.turn.ttl(),
                renewed: true,
                fenced: self.turn.token().is_some(),
                max_hold: None,
                keep_for,
                permits: self.tenure.permits(),
                label: self.turn.label,
            },
            waiter: None,
        })
    }
}

impl Release {
    /// Makes another one the holder, in one round trip. Always runs to its end; `told` hears of it before the last of the
    /// cleaning up, which can take as long as the lease of who follows.
    pub(super) async fn hand_over(
        mut self,
        next: Following,
        told: oneshot::Sender<Result<(), LockError>>,
    ) {
        let Some(work) = &mut self.work else {
            return;
        };
        let core = work.core.clone();
        let (Some(head), Some(store)) = (work.turn.head.take(), core.backend.hand_off()) else {
            return;
        };
        let (key, from) = (head.key().clone(), work.tenure.holder());
        let (to, spare) = match (&next.waiter, key.kind()) {
            (None, kind) => (core.ids.fresh_keeper(), idle::spare_tokens(kind)),
            // It counts holds: what nobody takes is a gap that people see.
            (_, Kind::Fenced) => (core.ids.fresh(), head.waiters().min(SPARE_TOKENS)),
            _ => (core.ids.fresh(), SPARE_TOKENS),
        };
        let options = next.options;
        let lease = options.ttl.duration();
        let call = core.acquire_request(&key, to, &options, clock::now());
        let hold_ref = call.hold_ref;
        let fault = match store.hand_over(from, call, spare).await {
            Ok(HandedOver::Done(granted, mut terms)) => {
                let readers = readers_of(&core, &key);
                terms.strangers = terms.strangers.map(|others| others + readers);
                self.work = None;
                match next.waiter {
                    None => idle::keep(&core, head, to, options, granted, terms),
                    Some(successor) => {
                        let reserved = reserve(&core, &head, terms);
                        let handle = HoldHandle::admit(
                            &core,
                            &key,
                            Some(head),
                            to,
                            options,
                            granted,
                            reserved,
                        );
                        give(&core, key.kind(), successor, handle.offered());
                    }
                }
                let _ = told.send(Ok(()));
                return;
            }
            Ok(HandedOver::NotHeld) => {
                next.inherits_nothing(head);
                let _ = told.send(self.conclude(Ok(Released::NotHeld)));
                return;
            }
            // The old holder has released; what was granted to the new one is given back by the backend.
            Err(fault @ Fault::TooFew(_)) => {
                head.heard_from_store(Some(&fault));
                self.work = None;
                next.inherits_nothing(head);
                let _ = told.send(Ok(()));
                return;
            }
            Err(fault) => fault,
        };
        let unknown = matches!(fault, Fault::Unknown(_));
        next.inherits_nothing(head);
        work.unanswered |= unknown;
        // First the old holder, then the new one: whichever of them the store has by the time, and however late the
        // lost request arrives, neither is left behind.
        let outcome = self.give_back().await;
        let _ = told.send(outcome);
        if unknown {
            undo(&core, hold_ref, clock::now() + lease).await;
        }
    }
}

/// One if readers of this process wait beside the writers: they are in another queue, and no less strangers there.
fn readers_of(core: &Core, key: &Key) -> u64 {
    u64::from(key.kind() == Kind::Write && core.queues.is_open(&key.as_kind(Kind::Read)))
}
