//! One guard's part in a turn.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::Span;

use super::call_chain::{Frame, Level, Path};
use super::{Core, Hold, Left, Lifecycle, Share, Tenure, TurnAllowance, current_runtime};
use crate::backend::{Granted, Renewed};
use crate::observe::{metrics, spans};
use crate::queue::Front;
use crate::values::{
    Count, Counted, HoldOptions, HolderId, Key, Kind, LockError, Moment, Ttl, clock,
};

/// One guard's handle of a turn. The outermost guard and every nested one have one each; the turn ends with the last.
pub(crate) struct HoldHandle {
    core: Arc<Core>,
    hold: Hold,
    /// The kind as which it shares the turn: a read may share a write hold.
    kind: Kind,
    /// Whether it is one of those that want the turn renewed. Not before its caller has it.
    renewed: bool,
    /// The body that this handle was acquired in.
    pub(super) acquired_in: Option<Arc<Frame>>,
    /// This handle as a level: made when a body runs under it.
    level: OnceLock<Arc<Level>>,
    /// A nested handle's accesses under its ancestors.
    path: Option<Path>,
    /// Keeps a shutdown waiting; the count that it is in decides for how long. `None` once the handle has left, which
    /// passes it on to the release.
    counted: Option<Counted>,
    /// The span, from the moment at which its caller has the handle. Boxed, and only if a subscriber wants it: guards
    /// stay small.
    span: Option<Box<Span>>,
}

impl HoldHandle {
    /// Begins with what the store has granted, as its first sharer: from here on the watchdog knows the tenure.
    pub(crate) fn admit(
        core: &Arc<Core>,
        key: &Arc<Key>,
        front: Option<Front>,
        holder: HolderId,
        hold_options: HoldOptions,
        granted: Granted,
        allowance: Option<TurnAllowance>,
    ) -> HoldHandle {
        if let Some(front) = &front {
            front.now_held_by(hold_options.label.lock);
        }
        let (of, key) = (Arc::downgrade(core), key.clone());
        let hold = Tenure::begin(of, key, front, holder, &hold_options, granted, allowance);
        core.watch.insert(hold.tenure(), granted.sent_at);
        core.presence.note_wanted();
        let counted = core.life.under_way.enter();
        HoldHandle::begins(core, hold, hold_options, counted)
    }

    /// The first handle of a turn that begins with the caller.
    pub(crate) fn begins(
        core: &Arc<Core>,
        hold: Hold,
        hold_options: HoldOptions,
        counted: Counted,
    ) -> HoldHandle {
        let kind = hold.key().kind();
        metrics::held(hold_options.label, kind);
        HoldHandle::new(core.clone(), hold, kind, None, counted)
    }

    /// Takes the handle back, and offers its turn to a caller that was not polled yet. If it was lost meanwhile, the caller
    /// finds nothing to claim, and asks again.
    pub(crate) fn offered(mut self) -> Offer {
        if let Some(counted) = self.counted.take() {
            // A handle that could not offer its turn leaves it when it is dropped.
            self.counted = self.hold.offer(counted).err();
        }
        Offer::new(&self.core, self.hold.clone())
    }

    /// Counts the handle by another of the counts for which a shutdown waits.
    pub(crate) fn count_as(&mut self, counter: impl FnOnce(&Lifecycle) -> &Arc<Count>) {
        if let Some(counted) = &mut self.counted {
            // Counted anew before the old count ends: a shutdown in between sees one of them.
            *counted = counter(&self.core.life).enter();
        }
    }

    /// The caller has the handle from here on, without another await: if it wants that, the watchdog renews the hold, and the
    /// key stays taken for `least` from now, even if the handle ends before. A caller that was not polled any more before this
    /// keeps the lock for one lease at most.
    pub(crate) fn reach_caller(&mut self, renewed: bool, least: Option<&Duration>) {
        if renewed && !self.renewed {
            self.renewed = true;
            if self.hold.add_renewer() {
                self.core.watch.look_now(self.hold.tenure());
            }
        }
        if let Some(least) = least {
            let until = clock::now() + *least;
            self.hold.with_turn(|turn| turn.cover_until(until));
        }
    }

    /// Limits the hold from now on, unless it is limited already (`max_hold`).
    pub(crate) fn ends_after(&self, longest: Duration) {
        if self.hold.ends_after(longest) {
            self.core.watch.ends_earlier(self.hold.tenure());
        }
    }

    /// `path`: of a handle that is nested, the accesses that it is under.
    pub(crate) fn new(
        core: Arc<Core>,
        hold: Hold,
        kind: Kind,
        path: Option<Path>,
        counted: Counted,
    ) -> HoldHandle {
        let (acquired_in, level) = (None, OnceLock::new());
        HoldHandle {
            core,
            hold,
            kind,
            renewed: false,
            acquired_in,
            level,
            path,
            counted: Some(counted),
            span: None,
        }
    }

    /// Notes in which body the handle was acquired.
    pub(crate) fn acquired_in(mut self, frame: Option<Arc<Frame>>) -> HoldHandle {
        self.acquired_in = frame;
        self.span = spans::hold(&self.hold);
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// From here on it only reads.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub(crate) fn stop_writing(&mut self) -> Result<Left, LockError> {
        let left = self.hold.stop_writing()?;
        self.kind = Kind::Read;
        if let Some(level) = self.level.get() {
            level.stop_writing();
        }
        Ok(left)
    }

    /// Whether it shares an ancestor's hold.
    pub(crate) fn is_nested(&self) -> bool {
        self.path.is_some()
    }

    /// Whether it has a hold of its own that the watchdog does not renew.
    pub(crate) fn is_fixed(&self) -> bool {
        !self.renewed && !self.is_nested()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns this handle as a level of a call chain. `before` is the level of the handle before this one, in a guard that
    /// holds several.
    pub(super) fn level(&self, before: Option<Arc<Level>>) -> Arc<Level> {
        let path = self.path.as_deref().unwrap_or_default();
        let level = || Level::new(self.hold.clone(), self.kind, path, before);
        self.level.get_or_init(level).clone()
    }

    /// Extends the lease to `ttl` from now, if that is longer than what is left.
    pub(crate) async fn renew(&self, ttl: Ttl) -> Result<(), LockError> {
        current_runtime()?;
        let hold = &self.hold;
        let tenure = hold.tenure();
        hold.check()?;
        let timeout = self.core.options.call_timeout;
        let answer = loop {
            let renewal = tenure.renewal(Some(ttl));
            let sent_at = clock::now();
            let answer = self.core.renew(renewal.clone(), timeout).await;
            let answer = answer.map_err(|fault| fault.into_error(hold.key().name()))?;
            let counts = tenure.answered(&renewal, answer, sent_at);
            // A write that became a read meanwhile is asked for as a read.
            if counts == answer {
                break answer;
            }
        };
        if answer == Renewed::NotHeld {
            // The hold is lost: the watchdog takes it out, and logs that.
            self.core.watch.look_now(tenure);
        }
        if answer == Renewed::Unknown {
            let why = "the renewal was not confirmed";
            return Err(LockError::unavailable(hold.key().name(), why));
        }
        hold.check()
    }

    /// Returns `true` if the task that drops the handle may get the lock again before it is given back.
    fn returns(&self) -> bool {
        let is_last = self.kind.is_exclusive() && !self.is_nested();
        is_last && !self.core.is_wanted(self.hold.key(), self.hold.holder())
    }

    /// Takes the handle out of its turn, once. `None` if it has left already. A shutdown waits
    /// until the count is dropped: until what is left to do at the store counts for itself.
    pub(crate) fn leave(&mut self, is_dropped: bool) -> Option<(Left, Moment, Counted)> {
        let counted = self.counted.take()?;
        let share = Share {
            kind: self.kind,
            renewed: self.renewed,
            returns: is_dropped && self.returns(),
        };
        let now = clock::now();
        let left = self.hold.leave(&self.core, share, now);
        let is_lost = matches!(left, Left::Lost { .. });
        if let Some(span) = self.span.take() {
            spans::hold_ended(&span, is_lost);
        }
        if let Some(level) = self.level.get()
            && !is_lost
        {
            level.leave();
        }
        // A nested handle's accesses end with it, not with the guard that may be kept.
        self.path = None;
        Some((left, now, counted))
    }
}

/// A turn on its way to the caller that the lock was handed over to. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Offer(Option<(Arc<Core>, Hold)>);

impl Offer {
    pub(crate) fn new(core: &Arc<Core>, hold: Hold) -> Offer {
        Offer(Some((core.clone(), hold)))
    }

    /// The handle; `None` if the turn was lost meanwhile.
    pub(crate) fn claim(mut self) -> Option<HoldHandle> {
        self.take()
    }

    fn take(&mut self) -> Option<HoldHandle> {
        let (core, hold) = self.0.take()?;
        let counted = hold.claim()?;
        let kind = hold.key().kind();
        Some(HoldHandle::new(core, hold, kind, None, counted))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl fmt::Debug for HoldHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
