//! The lock goes to the next waiter of this process: without the store while a tenure lasts, else in one round trip.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Departure, kept, undo};
use crate::backend::{Fault, Granted, HandedOver, Released, TenureTerms};
use crate::hold::{Beginning, Core, Hold, HoldHandle, Tenure};
use crate::observe::metrics;
use crate::queue::{Head, Successor, Turn};
use crate::values::{
    HoldOptions, HolderId, Key, Kind, LockError, Moment, SPARE_TOKENS, UnusedTokens, clock,
};

/// The outcome of handing a lock to the next waiter without the store.
pub(super) enum Passed {
    On,
    /// No waiter is there whom the tenure can serve. Nothing watches the hold any more. Tokens may be left over.
    Not(Head, Option<UnusedTokens>),
    /// The watchdog did not know the hold any more: it may have been released by force, and the store knows. The waiter
    /// who was next has the turn, if there was one.
    Unknown(Option<Head>),
}

/// Makes the next waiter of this process the holder if the tenure can serve it. The store is not asked: it knows the
/// holder that it knew before.
pub(super) fn pass_on(
    core: &Arc<Core>,
    hold: &Hold,
    head: Head,
    mut tenure: Tenure,
    now: Moment,
) -> Passed {
    let mut granted = None;
    let suits = |options: &HoldOptions| {
        granted = tenure.grant(options, now);
        granted.is_some()
    };
    let successor = match core.life.is_open() {
        true => head.successor_if(suits),
        false => None,
    };
    let (Some(successor), Some(granted)) = (successor, granted) else {
        return match core.watch.remove(hold) {
            true => Passed::Not(head, tenure.unused()),
            false => Passed::Unknown(Some(head)),
        };
    };
    let beginning = Beginning {
        at: now,
        tenure: Some(tenure),
        ..Beginning::from(granted)
    };
    let options = unrenewed(&successor);
    match HoldHandle::follow(core, hold, head, options, beginning) {
        Ok(handle) => {
            give(core, successor, handle);
            Passed::On
        }
        Err(head) => {
            head.held_no_more();
            NextHolder::Waiter(successor).inherits_nothing(head);
            Passed::Unknown(None)
        }
    }
}

/// What the store has just granted, with a tenure in which the lock goes round in this process, if the terms allow one.
pub(crate) fn with_tenure(
    core: &Core,
    head: &Head,
    options: &HoldOptions,
    granted: Granted,
    terms: TenureTerms,
) -> Beginning {
    let TenureTerms { strangers, spare } = terms;
    let round_trip = core.backend.round_trip(head.key());
    let crowd_from = core.options.crowd_from;
    let until = head.budget(|budget| budget.tenure_begins(strangers, crowd_from, round_trip));
    let tenure = until.and_then(|until| Tenure::new(options.ttl, granted, spare, until));
    Beginning {
        tenure,
        ..Beginning::from(granted)
    }
}

/// The successor has the lock from here on, as `holder`.
fn become_holder(
    core: &Arc<Core>,
    head: Head,
    successor: Successor,
    holder: HolderId,
    beginning: Beginning,
) {
    let (key, options) = (head.key().clone(), unrenewed(&successor));
    let handle = HoldHandle::admit(core, &key, Some(head), holder, options, beginning);
    give(core, successor, handle);
}

/// It is renewed once its caller has taken it.
fn unrenewed(successor: &Successor) -> HoldOptions {
    HoldOptions {
        renewed: false,
        ..successor.hold_options
    }
}

fn give(core: &Arc<Core>, successor: Successor, handle: HoldHandle) {
    metrics::handed_over(handle.hold().label(), handle.kind());
    // A manager that closes drops both: the successor is told, and the lock is given back.
    if core.life.is_open() {
        let refused = successor.give(Turn::Held(handle.unclaimed()));
        // That waiter has just left, and the lock goes on from here. In a task: a thousand who leave would otherwise be
        // a thousand calls deep.
        if let Some(turn) = refused {
            core.life.spawn(async move { drop(turn) });
        }
    }
}

/// The waiter that has the lock next.
pub(super) enum NextHolder {
    Waiter(Successor),
    /// Nobody wants it, and this process keeps it.
    Nobody(HoldOptions),
}

impl NextHolder {
    /// The process keeps the lock as `hold` had it.
    pub(super) fn nobody(hold: &Hold, keep_for: Duration) -> NextHolder {
        NextHolder::Nobody(HoldOptions {
            ttl: hold.ttl(),
            renewed: true,
            fenced: hold.token().is_some(),
            max_hold: None,
            keep_for: Some(keep_for),
            permits: hold.permits(),
            label: hold.label(),
        })
    }

    fn options(&self) -> &HoldOptions {
        match self {
            NextHolder::Waiter(successor) => &successor.hold_options,
            NextHolder::Nobody(options) => options,
        }
    }

    /// The lock was not handed over: who is next asks the store.
    fn inherits_nothing(self, head: Head) {
        match self {
            NextHolder::Waiter(successor) => drop(successor.give(Turn::Head(head))),
            NextHolder::Nobody(_) => drop(head),
        }
    }
}

impl Departure {
    /// Makes `next` the holder, in one round trip. Always runs to its end; `told` hears of it before the last of the
    /// cleaning up, which can take as long as the successor's lease.
    pub(super) async fn hand_over(
        mut self,
        next: NextHolder,
        told: oneshot::Sender<Result<(), LockError>>,
    ) {
        let core = self.core.clone();
        let (Some(head), Some(store)) = (self.head.take(), core.backend.hand_off()) else {
            return;
        };
        let key = head.key().clone();
        let (from, options) = (self.hold.holder(), *next.options());
        let (to, spare) = match (&next, key.kind()) {
            (NextHolder::Nobody(_), kind) => (core.ids.fresh_keeper(), kept::spare_tokens(kind)),
            // It counts holds: what nobody takes is a gap that people see.
            (_, Kind::Fenced) => (core.ids.fresh(), head.waiters().min(SPARE_TOKENS)),
            _ => (core.ids.fresh(), SPARE_TOKENS),
        };
        let lease = options.ttl.duration();
        let call = core.acquire_request(&key, to, &options, clock::now());
        let hold_ref = call.hold_ref;
        let fault = match store.hand_over(from, call, spare).await {
            Ok(HandedOver::Done(granted, mut terms)) => {
                let readers = readers_of(&core, &key);
                terms.strangers = terms.strangers.map(|others| others + readers);
                self.done = true;
                let NextHolder::Waiter(successor) = next else {
                    kept::keep(&core, head, to, options, granted, terms);
                    let _ = told.send(Ok(()));
                    return;
                };
                let beginning = with_tenure(&core, &head, &options, granted, terms);
                become_holder(&core, head, successor, to, beginning);
                let _ = told.send(Ok(()));
                return;
            }
            Ok(HandedOver::NotHeld) => {
                next.inherits_nothing(head);
                let _ = told.send(self.conclude(Released::NotHeld));
                return;
            }
            // The old holder has released; what was granted to the new one is given back by the backend.
            Err(fault @ Fault::TooFew(_)) => {
                head.heard_from_store(Some(&fault));
                self.done = true;
                next.inherits_nothing(head);
                let _ = told.send(Ok(()));
                return;
            }
            Err(fault) => fault,
        };
        let unknown = matches!(fault, Fault::Unknown(_));
        next.inherits_nothing(head);
        self.unanswered |= unknown;
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
