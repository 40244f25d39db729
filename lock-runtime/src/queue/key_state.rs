//! The state of one key in this process: what the caller at the front does, and who waits behind it.
//!
//! It sends nothing and reads no clock. Each input is a method, and returns what the caller has to do after the shard is
//! unlocked. Inputs from an owner that was passed over do not arrive here ([`super::Front`]).
//!
//! | stage | a caller comes | the front is dropped | callers see no sign | the lock is acquired | the hold ends |
//! |---|---|---|---|---|---|
//! | `Asking` | queues | goes to the next waiter | goes to the next waiter | `Held` | – |
//! | `Held` | queues | goes to the next waiter | – | `Held` | `Asking`, or `Idle` |
//! | `Idle` | begins the next turn: `Held`; or has the lock given back: `Asking` | goes to the next waiter | goes to the next waiter, because the tenure is over | `Held` | – |
//! | `Rests` | queues; takes the front if it cannot wait so long: `Asking` | goes to the next waiter | goes to the next waiter | – | – |
//!
//! The front "goes to the next waiter": `Asking`, or without a waiter the state is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use super::{Entered, Ticket};
use crate::backend::Fault;
use crate::hold::{Tenure, Turn};
use crate::queue::slice::Slice;
use crate::release::place::Place;
use crate::values::{HoldOptions, LockError, Moment};

/// The state of a key that this process holds or asks for.
pub(crate) struct KeyState {
    /// The number of the owner of the front.
    front: u64,
    stage: KeyStage,
    /// The number of answers that callers at the front got from the store, and of releases, rests and idle times that they
    /// began. It grows while such a caller is polled.
    signs: u64,
    /// When a caller first looked at the front since the last sign.
    silent_since: Option<Moment>,
    /// The waiters by number, and so in the order of arrival.
    waiters: BTreeMap<u64, Successor>,
    slice: Slice,
    /// The place on the store's list that the last caller at the front left to the next one.
    pub(super) place: Option<Box<Place>>,
    /// The fault of the last request. `None` after an answer. Boxed, because each held key has a state.
    fault: Option<Box<Fault>>,
    /// The signal for callers that wait for the first answer.
    awaited: Option<Arc<Notify>>,
}

/// What the owner of the front does.
#[derive(Debug)]
pub(super) enum KeyStage {
    /// It asks the store, waits for the lock, or gives it back.
    Asking {
        /// Whether it is counted as waiting.
        waits: bool,
        /// Whether the store has answered since the first caller came.
        heard: bool,
    },
    /// It is a hold.
    Held {
        label: &'static str,
        /// Whether a warning about a long wait was logged.
        warned: bool,
    },
    /// It is a tenure that this process keeps while no caller holds the lock.
    Idle(Arc<Tenure>),
    /// It lets other processes ask first.
    Rests { until: Moment },
}

/// A caller that waits, and that the front or a hold goes to.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(super) ticket: oneshot::Sender<Ticket>,
    pub(crate) hold_options: HoldOptions,
}

/// The owner of the front, and its count of answers, as a waiter saw them.
pub(super) type Sign = (u64, u64);

impl KeyState {
    /// The first caller comes, and owns the front under this number.
    pub(super) fn new(front: u64) -> KeyState {
        KeyState {
            front,
            stage: KeyStage::Asking {
                waits: false,
                heard: false,
            },
            signs: 0,
            silent_since: None,
            waiters: BTreeMap::new(),
            slice: Slice::default(),
            place: None,
            fault: None,
            awaited: None,
        }
    }

    pub(super) fn is_front(&self, number: u64) -> bool {
        self.front == number
    }

    /// Returns the number of waiting callers, with the one at the front.
    pub(super) fn waiting(&self) -> usize {
        let front = matches!(self.stage, KeyStage::Asking { waits: true, .. });
        self.waiters.len() + usize::from(front)
    }

    /// Returns the number of callers behind the front.
    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn slice(&mut self) -> &mut Slice {
        &mut self.slice
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.as_deref().cloned()
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, KeyStage::Idle(_))
    }
}

/// Callers come and leave.
impl KeyState {
    /// A caller comes. Returns what it gets at once: the idle tenure. `None` if there is none, or if it has ended: then the
    /// caller waits until the lock is given back.
    pub(super) fn take_idle(&mut self, hold_options: &HoldOptions, now: Moment) -> Option<Entered> {
        let KeyStage::Idle(tenure) = &self.stage else {
            return None;
        };
        let entered = tenure.take(hold_options, now)?;
        if let Entered::Held(..) = entered {
            self.held_by(hold_options.label.lock);
        } else {
            self.asks(false);
        }
        Some(entered)
    }

    /// A caller comes that owns the front under this number, if nobody waits and the front rests until a moment for which the
    /// caller may not wait: a rest must not make a free lock look busy.
    pub(super) fn pass_rest(&mut self, number: u64, may_wait: impl FnOnce(Moment) -> bool) -> bool {
        let KeyStage::Rests { until } = self.stage else {
            return false;
        };
        if !self.waiters.is_empty() || may_wait(until) {
            return false;
        }
        self.front = number;
        self.asks(true);
        true
    }

    /// A caller queues.
    pub(super) fn queue(&mut self, number: u64, caller: Successor) {
        self.waiters.insert(number, caller);
    }

    /// A caller that queued leaves. Returns what is to be dropped.
    pub(super) fn leave(&mut self, number: u64) -> Option<Successor> {
        self.waiters.remove(&number)
    }

    /// The caller at the front has to wait, if `admit` allows one more beside this number of waiting callers.
    pub(super) fn front_waits(
        &mut self,
        admit: impl FnOnce(usize) -> Result<(), LockError>,
    ) -> Result<(), LockError> {
        let waiting = self.waiting();
        if let KeyStage::Asking { waits, .. } = &mut self.stage
            && !*waits
        {
            admit(waiting)?;
            *waits = true;
        }
        Ok(())
    }

    /// Returns the signal for the store's first answer, if there was none yet.
    pub(super) fn first_news(&mut self) -> Option<OwnedNotified> {
        (!self.heard()).then(|| {
            let awaited = self.awaited.get_or_insert_default().clone();
            awaited.notified_owned()
        })
    }

    pub(super) fn sign(&self) -> Sign {
        (self.front, self.signs)
    }

    /// A caller looks at the front. A silence begins with the first look of any caller, and ends with a sign of the front's
    /// owner. If it lasts for the time of `silence`, no task polls the owner any more, and the front passes to `number`. A hold
    /// is never passed over, because it ends by itself.
    pub(super) fn look(&mut self, now: Moment, silence: Duration, number: u64) -> bool {
        if matches!(self.stage, KeyStage::Held { .. }) {
            return false;
        }
        let since = *self.silent_since.get_or_insert(now);
        let passes = now.has_reached(since + silence);
        if passes {
            self.front = number;
            self.silent_since = None;
        }
        passes
    }

    fn gives_a_sign(&mut self) {
        self.signs += 1;
        self.silent_since = None;
    }

    /// Returns the label of the hold that a waiter waits for, if it saw the same hold at `last`. Only the first call about a
    /// hold gets it.
    pub(super) fn blocked_by(&mut self, last: Sign) -> Option<&'static str> {
        let is_same = last == self.sign();
        match &mut self.stage {
            KeyStage::Held { label, warned } if is_same => {
                (!std::mem::replace(warned, true)).then_some(*label)
            }
            _ => None,
        }
    }

    /// The manager closes. Returns what is to be dropped.
    pub(super) fn close(&mut self) -> (BTreeMap<u64, Successor>, Option<Box<Place>>) {
        (std::mem::take(&mut self.waiters), self.place.take())
    }
}

/// The owner of the front reports.
impl KeyState {
    /// The store has answered, or has not. Returns the signal for callers that wait for the first answer: a waker may poll at
    /// once, so it is given with the shard unlocked.
    pub(super) fn answered(&mut self, fault: Option<Fault>) -> Option<Arc<Notify>> {
        self.fault = fault.map(Box::new);
        self.gives_a_sign();
        if let KeyStage::Asking { heard, .. } = &mut self.stage {
            *heard = true;
        }
        self.awaited.take()
    }

    /// A caller holds the lock from now on. Returns the same signal. Nobody waits for it where the lock was held or kept
    /// before.
    pub(crate) fn held_by(&mut self, label: &'static str) -> Option<Arc<Notify>> {
        self.stage = KeyStage::Held {
            label,
            warned: false,
        };
        self.answered(None)
    }

    /// No caller holds the lock any more, so the front can be passed over: a caller that is not polled any more may own the
    /// release. Returns `true` if no caller waits.
    pub(crate) fn held_no_more(&mut self) -> bool {
        if matches!(self.stage, KeyStage::Held { .. }) {
            self.asks(true);
        }
        self.waiters.is_empty()
    }

    /// The hold ends, and the process keeps the lock. Returns `false` if a caller waits, or if the process has kept the key for
    /// its whole time.
    pub(super) fn keep(&mut self, tenure: &Arc<Tenure>, now: Moment) -> bool {
        let may_keep = self.waiters.is_empty() && self.slice.may_keep(now);
        if may_keep {
            self.stage = KeyStage::Idle(tenure.clone());
            self.gives_a_sign();
        }
        may_keep
    }

    /// The tenure is not idle any more, and is given back. `heard`: whether the store's last answer is recent.
    pub(super) fn idles_no_more(&mut self, tenure: &Tenure, heard: bool) {
        if matches!(&self.stage, KeyStage::Idle(idle) if std::ptr::eq(&**idle, tenure)) {
            self.asks(heard);
        }
    }

    /// Ends the idle tenure. Returns it with the turn that has the front; `None` if other code has ended it: that takes it out.
    pub(super) fn end_idle(&mut self, now: Moment) -> Option<(Arc<Tenure>, Turn)> {
        let KeyStage::Idle(tenure) = &self.stage else {
            return None;
        };
        let ended = (tenure.clone(), tenure.stop_idling(now)?);
        self.asks(false);
        Some(ended)
    }

    /// The front only lets other processes ask first.
    pub(super) fn rests(&mut self, until: Moment) {
        self.stage = KeyStage::Rests { until };
        self.gives_a_sign();
    }

    /// The front is dropped. The next waiter owns it under this number; `None` if no caller waits. The stage before is to be
    /// dropped unlocked.
    pub(super) fn pass_on(
        &mut self,
        number: u64,
        is_exclusive: bool,
    ) -> (Option<Successor>, KeyStage) {
        let next = self.waiters.pop_first();
        // The caller before may have been admitted, so the answer to this one is the first one again.
        let heard = self.heard() && is_exclusive;
        self.front = number;
        self.silent_since = None;
        let asking = KeyStage::Asking {
            // It waited in the queue.
            waits: next.is_some(),
            heard,
        };
        let before = std::mem::replace(&mut self.stage, asking);
        (next.map(|(_, caller)| caller), before)
    }

    /// Takes out the first caller that still waits, if it `suits`.
    pub(crate) fn next_if(
        &mut self,
        mut suits: impl FnMut(&HoldOptions) -> bool,
    ) -> Option<Successor> {
        loop {
            let first = self.waiters.first_entry()?;
            let has_left = first.get().ticket.is_closed();
            if !has_left && !suits(&first.get().hold_options) {
                return None;
            }
            let caller = first.remove();
            if !has_left {
                return Some(caller);
            }
        }
    }

    /// Takes out the waiters whose numbers are not higher than this one.
    pub(super) fn take_up_to(&mut self, last: u64) -> BTreeMap<u64, Successor> {
        let later = self.waiters.split_off(&last.saturating_add(1));
        std::mem::replace(&mut self.waiters, later)
    }

    /// Whether the store's last answer is about the time since the first caller came.
    fn heard(&self) -> bool {
        match self.stage {
            KeyStage::Asking { heard, .. } => heard,
            KeyStage::Held { .. } | KeyStage::Rests { .. } => true,
            // Its tenure has ended, and is about to be given back.
            KeyStage::Idle(_) => false,
        }
    }

    /// The owner of the front asks, or gives the lock back. `heard`: whether the store's last answer is about this time.
    fn asks(&mut self, heard: bool) {
        self.stage = KeyStage::Asking {
            waits: false,
            heard,
        };
        // The silence of a long hold says nothing about its release.
        self.gives_a_sign();
    }
}

#[cfg(test)]
mod tests;
