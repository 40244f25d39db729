//! Waiting for a fair lock: every waiter has a place of its own in the store's queue, under one holder id, and keeps
//! it by asking again. Deadlines, faults and pauses are those of any other wait.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, Fault, Listen, QUEUE_LIFE, Stake};
use crate::clock::{self, Moment};
use crate::core::Core;
use crate::error::LockError;
use crate::gate::Waiting;
use crate::holder::HolderId;
use crate::key::Key;
use crate::lifecycle::Counted;
use crate::order::{Order, Patience};
use crate::release::undo;
use crate::share::Share;
use crate::term::Term;
use crate::wait::{Asked, Seat, ask_as, nap};

/// Whoever is behind others asks this often at the latest, give or take, or its place would be taken for deserted.
const HEARTBEAT: Duration = Duration::from_millis(1_600);
/// The first in the queue may be told that nothing is left of a lease which the store still keeps. It never asks
/// more often than this without being woken.
const SHORTEST_NAP: Duration = Duration::from_millis(50);
/// How much later than we think, by its own clock and the call timeout aside, the server may still take a question.
const SLACK: Duration = Duration::from_secs(1);

/// A caller who asks for a fair lock, with what it has at the store.
pub(crate) struct InLine {
    core: Arc<Core>,
    key: Arc<Key>,
    holder: HolderId,
    first: bool,
    /// The store may have a place in the queue, or even the lock, for this holder.
    known: bool,
    /// Until when a question that got no answer may still arrive. Set while one is under way: whoever drops it does not
    /// know the answer either.
    loose_until: Option<Moment>,
    term: Option<Term>,
    /// Local caps and counts.
    waiting: Option<Waiting>,
    /// Keeps a shutdown waiting until the place is given back.
    _leaving: Counted,
}

impl InLine {
    /// For somebody who may wait.
    pub(crate) fn new(core: &Arc<Core>, key: &Arc<Key>) -> Result<InLine, LockError> {
        let waiting = core.gates.join_line(key)?;
        Ok(InLine::with(core, key, Some(waiting)))
    }

    /// For somebody who does not wait. `None` if others of this process do.
    pub(crate) fn alone(core: &Arc<Core>, key: &Arc<Key>) -> Option<InLine> {
        core.gates
            .line_is_empty(key)
            .then(|| InLine::with(core, key, None))
    }

    fn with(core: &Arc<Core>, key: &Arc<Key>, waiting: Option<Waiting>) -> InLine {
        InLine {
            core: core.clone(),
            key: key.clone(),
            holder: core.ids.fresh(),
            first: false,
            known: false,
            loose_until: None,
            term: None,
            waiting,
            _leaving: core.life.background.enter(),
        }
    }

    /// A question without an answer may arrive after the hold that a later one was granted has ended, and take the
    /// lock for nobody.
    fn watch_for_strays(&self, share: &Share) {
        let Some(until) = self.loose_until else {
            return;
        };
        let until = until + self.slack();
        let (core, key, holder) = (self.core.clone(), self.key.clone(), self.holder);
        let (hold, lease) = (Arc::downgrade(share.hold()), share.hold().term().ttl());
        self.core.life.spawn(async move {
            clock::sleep_until(until).await;
            // The store takes the question no more. A hold that is good, or whose key is kept for a while, is given back
            // later than this.
            if hold.upgrade().is_none_or(|hold| hold.is_given_back()) {
                undo(&core, stake(&key, holder), clock::now() + lease).await;
            }
        });
    }

    /// The estimate of the server's time is late by as much as the last answer was, a call timeout at most.
    fn slack(&self) -> Duration {
        SLACK + self.core.options.call_timeout
    }
}

impl Seat for InLine {
    async fn ask(
        &mut self,
        core: &Arc<Core>,
        order: &Order,
        patience: &Patience,
        now: Moment,
    ) -> Asked {
        let terms = order.terms;
        let timeout = terms.term.call_timeout(core.options.call_timeout);
        let arrives_until = now + patience.cut(timeout, now);
        self.term = Some(terms.term);
        let loose = self.loose_until;
        self.loose_until = Some(loose.map_or(arrives_until, |until| until.later(arrives_until)));
        let (_asking, answer) = ask_as(core, order, patience, self.holder, now).await;
        if !matches!(answer, Err(Fault::Unknown(_))) {
            self.loose_until = loose;
        }
        match answer {
            Ok(Acquired::Granted(granted)) => {
                self.known = false;
                self.waiting = None;
                let share = Share::admit(core, &self.key, None, self.holder, terms, granted);
                self.watch_for_strays(&share);
                Asked::Held(share)
            }
            Ok(Acquired::Queued { left, first }) => {
                self.known = true;
                self.first = first;
                Asked::Busy(left)
            }
            Ok(Acquired::Busy { left }) => Asked::Busy(left),
            Err(fault) => {
                if matches!(fault, Fault::TooFew(_)) {
                    // What gives it back may be repeated: whoever asks again is not to be undone by it.
                    let waiting = self.waiting.take();
                    *self = InLine::with(core, &order.key, waiting);
                }
                if matches!(fault, Fault::Unknown(_)) {
                    self.known = true;
                }
                Asked::Failed(fault)
            }
        }
    }

    fn listen(&self, core: &Core, key: &Arc<Key>) -> Box<dyn Listen> {
        core.backend.listen_alone(key, self.holder)
    }

    fn nap(&self, left: Option<Duration>) -> Duration {
        if self.first {
            nap(left).max(SHORTEST_NAP)
        } else {
            HEARTBEAT.mul_f64(0.8 + fastrand::f64() * 0.2)
        }
    }

    /// Counted from the first question on.
    fn waits(&self) -> Result<(), LockError> {
        Ok(())
    }
}

impl Drop for InLine {
    /// Leaves the queue in the background. A place that cannot be given back is deserted soon.
    fn drop(&mut self) {
        if !self.known {
            return;
        }
        let (core, key, holder) = (self.core.clone(), self.key.clone(), self.holder);
        let loose_until = self.loose_until.map(|until| until + self.slack());
        let lease = self.term.map_or(QUEUE_LIFE, Term::ttl).max(QUEUE_LIFE);
        self.core.life.spawn(async move {
            undo(&core, stake(&key, holder), clock::now() + lease).await;
            if let Some(until) = loose_until {
                clock::sleep_until(until).await;
                undo(&core, stake(&key, holder), clock::now() + lease).await;
            }
        });
    }
}

fn stake(key: &Key, holder: HolderId) -> Stake<'_> {
    Stake {
        key,
        holder,
        permits: 1,
    }
}
