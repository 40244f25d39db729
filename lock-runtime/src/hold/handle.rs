//! One guard's part in a hold.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::Span;

use super::call_chain::{CallChain, Frame, Level, Path};
use super::{Beginning, Core, Held, Hold, Kept, Left, Lifecycle, current_runtime};
use crate::backend::{Renewal, Renewed};
use crate::observe::{metrics, spans};
use crate::queue::Head;
use crate::renew::After;
use crate::values::{
    Count, Counted, HoldOptions, HolderId, Key, Kind, LockError, Moment, Ttl, clock,
};

/// One guard's handle of a hold. The outermost guard and every nested one have one each; the hold ends with the last.
pub(crate) struct HoldHandle {
    core: Arc<Core>,
    hold: Arc<Hold>,
    /// As what it shares the hold: a read may share a write hold.
    kind: Kind,
    renewed: bool,
    /// The body that this handle was acquired in.
    acquired_in: Option<Arc<Frame>>,
    /// This handle as a level: made when somebody runs under it.
    level: OnceLock<Arc<Level>>,
    /// A nested handle's accesses under its ancestors.
    path: Option<Path>,
    /// Keeps a shutdown waiting; the count that it is in decides for how long. `None` once the handle has left, which
    /// passes it on to the release.
    counted: Option<Counted>,
    /// From the moment at which its caller has it. Boxed, and only if somebody takes it: guards stay small.
    span: Option<Box<Span>>,
    /// Until when the key stays taken, even if the handle ends before.
    keep_until: Option<Box<Moment>>,
}

impl HoldHandle {
    /// Takes in a hold that the store has granted, and is the first to share it: from here on the watchdog knows it.
    /// It renews the hold if the options say so. They may say so only if the caller gets the handle before it awaits
    /// anything else: a caller that is not polled any more must not keep the lock for longer than its lease.
    pub(crate) fn admit(
        core: &Arc<Core>,
        key: &Arc<Key>,
        head: Option<Head>,
        holder: HolderId,
        hold_options: HoldOptions,
        beginning: impl Into<Beginning>,
    ) -> HoldHandle {
        if let Some(head) = &head {
            head.now_held_by(hold_options.label.lock);
        }
        let beginning = beginning.into();
        let sent_at = beginning.granted.sent_at;
        let life = core.life.clone();
        let hold = Hold::new(key.clone(), head, holder, hold_options, beginning, life);
        metrics::held(hold_options.label, hold.first_kind());
        core.watch.insert(&hold, sent_at);
        core.presence.is_wanted();
        HoldHandle::new(core.clone(), hold, key.kind(), hold_options.renewed, None)
    }

    /// Takes a lock that this process keeps, without the store. It cannot if the options are others, no token is left,
    /// or it was lost: it is then to be given back.
    pub(crate) fn take_kept(
        core: &Arc<Core>,
        head: Head,
        mut kept: Kept,
        hold_options: HoldOptions,
        now: Moment,
    ) -> Result<HoldHandle, (Head, Arc<Hold>)> {
        let Some(granted) = kept.grant(&hold_options, now) else {
            return Err((head, kept.idle));
        };
        let idle = kept.idle.clone();
        let beginning = Beginning {
            granted,
            at: now,
            tenure: None,
            keeping: Some(kept.into_keeping()),
        };
        HoldHandle::follow(core, &idle, head, hold_options, beginning).map_err(|head| (head, idle))
    }

    /// The lock goes on from a hold to the next one, without the store. They have the same holder id, and the watchdog's
    /// entry goes along. If the watchdog does not know the hold before any more, or that was lost, the turn comes back.
    pub(crate) fn follow(
        core: &Arc<Core>,
        before: &Hold,
        head: Head,
        hold_options: HoldOptions,
        beginning: Beginning,
    ) -> Result<HoldHandle, Head> {
        let (key, holder) = (head.key().clone(), before.holder());
        let life = core.life.clone();
        let hold = Hold::new(key, None, holder, hold_options, beginning, life);
        if !core.watch.pass_on(before, &hold) {
            return Err(head);
        }
        head.now_held_by(hold_options.label.lock);
        hold.owns(head);
        metrics::held(hold_options.label, hold.first_kind());
        let (kind, renewed) = (hold.key().kind(), hold_options.renewed);
        Ok(HoldHandle::new(core.clone(), hold, kind, renewed, None))
    }

    /// Leaves the handle with its hold until the caller that it is for takes it.
    pub(crate) fn unclaimed(self) -> Unclaimed {
        let hold = self.hold.clone();
        hold.keep_unclaimed(self);
        Unclaimed(hold)
    }

    /// A shutdown waits for it for its grace period only: its end is up to a caller.
    pub(crate) fn is_in_hand(&mut self) {
        self.count_as(|life| &life.in_hand);
    }

    /// A shutdown waits until it has ended: something here ends it when it is lost.
    pub(crate) fn is_under_way(&mut self) {
        self.count_as(|life| &life.under_way);
    }

    fn count_as(&mut self, counter: impl FnOnce(&Lifecycle) -> &Arc<Count>) {
        if let Some(counted) = &mut self.counted {
            // Counted anew before the old count ends: a shutdown in between sees one of them.
            *counted = counter(&self.core.life).enter();
        }
    }

    /// The caller has the handle from here on, and the watchdog renews the hold if the caller wants that.
    pub(crate) fn renew_from_now_on(&mut self, wanted: bool, now: Moment) {
        if wanted && !self.renewed {
            self.renewed = true;
            if self.hold.add_renewer(now) {
                self.core.watch.look_now(&self.hold);
            }
        }
    }

    /// `path`: of a handle that is nested, the accesses that it is under.
    pub(crate) fn new(
        core: Arc<Core>,
        hold: Arc<Hold>,
        kind: Kind,
        renewed: bool,
        path: Option<Path>,
    ) -> HoldHandle {
        let counted = Some(core.life.under_way.enter());
        let (acquired_in, level) = (None, OnceLock::new());
        HoldHandle {
            core,
            hold,
            kind,
            renewed,
            acquired_in,
            level,
            path,
            counted,
            span: None,
            keep_until: None,
        }
    }

    /// Notes in which body the handle was acquired.
    pub(crate) fn acquired_in(mut self, frame: Option<Arc<Frame>>) -> HoldHandle {
        self.acquired_in = frame;
        self.span = spans::hold(&self.hold);
        self
    }

    /// As what it shares the hold.
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
        Ok(left)
    }

    /// Keeps the key for `least` from now, if it is set, even if the handle ends before.
    pub(crate) fn set_min_hold(&mut self, least: Option<&Duration>) {
        self.keep_until = least.map(|least| Box::new(clock::now() + *least));
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

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Returns the call chain of a body that runs under this handle. `before` is the level of the handle before this
    /// one, in a guard that holds several.
    pub(crate) fn call_chain(&self, before: Option<Arc<Level>>) -> CallChain {
        let path = self.path.as_deref().unwrap_or_default();
        let level = || Level::new(self.hold.clone(), self.kind, path, before);
        CallChain {
            level: self.level.get_or_init(level).clone(),
            held: Held::One(self.hold.clone()),
            acquired_in: self.acquired_in.clone(),
        }
    }

    /// Extends the lease to `ttl` from now, if that is longer than what is left.
    pub(crate) async fn renew(&self, ttl: Ttl) -> Result<(), LockError> {
        current_runtime()?;
        let hold = &self.hold;
        hold.check()?;
        let renewal = Renewal {
            ttl: Some(ttl),
            ..hold.renewal()
        };
        let timeout = self.core.options.call_timeout;
        let sent_at = clock::now();
        let answer = self.core.renew(renewal.clone(), timeout).await;
        let answer = answer.map_err(|fault| fault.into_error(hold.key().name()))?;
        hold.renewed(&renewal, answer, sent_at);
        if answer == Renewed::NotHeld {
            // Lost: the watchdog takes it out, and says so.
            self.core.watch.look_now(hold);
        }
        if answer == Renewed::Unknown {
            let why = "the renewal was not confirmed";
            return Err(LockError::unavailable(hold.key().name(), why));
        }
        hold.check()
    }

    /// Takes the handle out of its hold, once. `None` if it has left already. A shutdown waits
    /// until the count is dropped: until what is left to do at the store counts for itself.
    pub(crate) fn leave(&mut self) -> Option<(Left, Counted)> {
        let counted = self.counted.take()?;
        let keep_until = self.keep_until.as_deref().copied();
        let mut left = self
            .hold
            .leave(self.kind, self.renewed, keep_until, clock::now());
        let is_lost = matches!(left, Left::Lost { .. });
        if let Some(span) = self.span.take() {
            span.record("outcome", if is_lost { "lost" } else { "released" });
        }
        if let Left::Good {
            head,
            left_at,
            tenure,
            keep_for,
            keeping,
            kept,
            ..
        } = &mut left
        {
            let open = self.core.life.is_open();
            *keep_for = keep_for.filter(|_| open);
            let goes_on = Option::zip(*keep_for, keeping.take())
                .and_then(|(keep_for, keeping)| keeping.falls_idle(keep_for, *left_at));
            // Before the release is sent: nothing renews a hold that is being given back.
            let left = match goes_on {
                Some(goes_on) => {
                    let left = self.core.watch.leave_to(&self.hold, &goes_on.idle);
                    *kept = Some(goes_on).filter(|_| left == After::Watched);
                    left
                }
                // The next hold of the tenure may have the entry.
                None if tenure.is_some() => After::Watched,
                None => self.core.watch.leave(&self.hold),
            };
            match left {
                After::Watched => {}
                // It is given back, and not kept again.
                After::Wanted => {
                    *keep_for = None;
                    if let Some(head) = head {
                        head.budget(|budget| budget.is_wanted(*left_at));
                    }
                }
                // A forced release may have taken it out: the store knows.
                After::Unknown => *keep_for = None,
            }
            metrics::ended(
                self.hold.label(),
                self.hold.first_kind(),
                left_at.since(self.hold.granted_at()),
            );
        }
        if let Some(level) = self.level.get()
            && !matches!(left, Left::Lost { .. })
        {
            level.leave();
        }
        // A nested handle's accesses end with it, not with the guard that may be kept.
        self.path = None;
        Some((left, counted))
    }
}

/// A hold on its way to the caller that it was handed over to. Dropped, it is given back.
///
/// The hold is not renewed, so a caller that is not polled any more keeps the lock for its lease at most. Its share
/// stays with the hold: a loss ends both at once, wherever the caller is.
#[derive(Debug)]
pub(crate) struct Unclaimed(Arc<Hold>);

impl Unclaimed {
    /// The handle; `None` if the hold was lost meanwhile.
    pub(crate) fn claim(self) -> Option<HoldHandle> {
        self.0.claim()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        drop(self.0.claim());
    }
}

impl fmt::Debug for HoldHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
