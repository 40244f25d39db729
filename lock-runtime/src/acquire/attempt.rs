//! A request of a caller, with the data that each step between the caller and the store needs.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::checked_request::{CheckedRequest, Deadline};
use crate::backend::{AcquireRequest, Acquired, Fault, Granted};
use crate::hold::{Asking, Core, HoldHandle, Turn, TurnAllowance, refused};
use crate::observe::spans::Wait;
use crate::queue::Front;
use crate::values::ttl::LEAST_CALL;
use crate::values::{
    Counted, HeldHere, HolderId, Key, Kind, LockError, Moment, ShutdownCause, clock,
};

/// A request, its manager, and the time at which its caller gives up.
pub(crate) struct Attempt {
    pub(crate) core: Arc<Core>,
    pub(crate) request: CheckedRequest,
    pub(crate) deadline: Deadline,
}

impl Attempt {
    /// The request's `wait` counts from here.
    pub(crate) fn new(core: Arc<Core>, request: CheckedRequest) -> Attempt {
        let deadline = Deadline::new(request.wait);
        Attempt {
            core,
            request,
            deadline,
        }
    }

    /// Counts the request until its outcome is reported.
    pub(crate) fn begin(&self) -> Wait<'_> {
        let label = &self.request.hold_options.label;
        Wait::began(self.key(), label, &self.deadline.since)
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.request.key
    }

    pub(crate) fn kind(&self) -> Kind {
        self.request.key.kind()
    }

    /// Returns the call that asks for the lock in the name of `holder`, within `deadline`.
    pub(crate) fn call(
        &self,
        holder: HolderId,
        now: Moment,
        deadline: Deadline,
    ) -> AcquireRequest<'_> {
        let Attempt { core, request, .. } = self;
        let call = core.acquire_request(&request.key, holder, &request.hold_options, now);
        AcquireRequest {
            in_all: request.in_all,
            // A caller that does not wait may have a longer deadline here: see `contend`.
            waits: self.deadline.waits().then(|| deadline.rest(now)),
            timeout: deadline.cut(call.timeout, now),
            ..call
        }
    }

    /// Asks the store once. If the holder's id is [outdated](Fault::Outdated), a new one replaces it in `call`, unless the store
    /// may know it: it is on the list, or an earlier request had no answer. The caller keeps the count until a grant counts as
    /// a guard, so that a shutdown waits; otherwise only the lease would end the lock.
    pub(crate) async fn ask(
        &self,
        call: &mut AcquireRequest<'_>,
        known: bool,
    ) -> (Counted, Result<Acquired, Fault>) {
        let core = &self.core;
        let asking = core.life.under_way.enter();
        if let Some(why) = core.life.closed() {
            return (asking, Err(Fault::Closed(why)));
        }
        let until = call.asked_at + call.timeout;
        loop {
            match core.backend.acquire(*call).await {
                Err(Fault::Outdated) if !known => {
                    let now = clock::now();
                    call.hold_ref.holder = core.ids.fresh();
                    (call.asked_at, call.timeout) = (now, (until - now).max(LEAST_CALL));
                    let deadline = self.deadline;
                    call.waits = deadline.waits().then(|| deadline.rest(now));
                }
                answer => return (asking, core.served.judge(Asking::For(self.kind()), answer)),
            }
        }
    }

    /// Returns the store's grant as a hold of this process. `front`: this process's front at the key, if the hold owns it.
    pub(crate) fn admit(
        &self,
        front: Option<Front>,
        holder: HolderId,
        granted: Granted,
        allowance: Option<TurnAllowance>,
    ) -> HoldHandle {
        let (key, options) = (&self.request.key, self.request.hold_options);
        HoldHandle::admit(&self.core, key, front, holder, options, granted, allowance)
    }

    /// Returns the time in which a few requests and messages go there and back.
    pub(crate) fn few_round_trips(&self) -> Duration {
        let round_trip = self.core.backend.round_trip(self.key());
        (round_trip * 8).max(Duration::from_millis(20))
    }

    /// Returns the error of a caller that gives up while another holder has the lock.
    pub(crate) fn busy(&self, left: Option<Duration>) -> LockError {
        let waited = self.deadline.waited();
        // A caller that does not wait may ask again and again, and must not pay for the search.
        let own = (!waited.is_zero()).then(|| self.core.watch.first_of(self.key()));
        LockError::Busy {
            name: self.key().name().to_owned(),
            waited,
            retry_after: left,
            held_here: own.flatten().and_then(|hold| {
                let here =
                    |turn: &mut Turn| HeldHere::new(turn.granted_at.elapsed(), turn.label.lock);
                hold.with_turn(here)
            }),
        }
    }

    /// Returns the error of a caller that has no answer of the store: the fault, of its own requests or of the caller at the
    /// front, or else that the lock is busy.
    pub(crate) fn gave_up(&self, fault: Option<Fault>) -> LockError {
        fault.map_or_else(|| self.busy(None), |fault| self.error(fault))
    }

    pub(crate) fn error(&self, fault: Fault) -> LockError {
        fault.into_error(self.key().name())
    }

    /// Returns the error of a caller that is sent away, because the manager shuts down or its runtime has ended.
    pub(crate) fn sent_away(&self) -> LockError {
        let why = self.core.life.closed();
        refused(self.key(), why.unwrap_or(ShutdownCause::Shutdown))
    }
}
