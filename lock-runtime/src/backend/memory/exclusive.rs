//! Holds of one holder at a time: those of mutexes, fenced and fair locks, and of writers.

use tokio::time::Instant;

use super::store::{Entry, MemoryState, foreign, left, renewed};
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, AskedKind, Fault, Granted, HandedOver, HoldRef,
    Released, Renewal, Renewed, Snapshot,
};
use crate::values::{HolderId, Key, Kind, LockMode, clock};

pub(super) struct Exclusive {
    pub(super) holder: HolderId,
    pub(super) expires: Instant,
    /// Whether it is the hold of a writer of a read/write lock.
    pub(super) writes: bool,
}

impl Exclusive {
    pub(super) fn left(&self) -> std::time::Duration {
        left(self.expires)
    }

    pub(super) fn seen(&self) -> Snapshot {
        let mode = if self.writes {
            LockMode::Write
        } else {
            LockMode::Exclusive
        };
        Snapshot {
            holder: Some(self.holder.text()),
            left: Some(self.left()),
            ..Snapshot::of(mode)
        }
    }
}

/// Returns the exclusive hold of the key, if there is one.
pub(super) fn hold<'a>(state: &'a mut MemoryState, key: &Key) -> Option<&'a mut Exclusive> {
    match state.live(key)? {
        Entry::Exclusive(hold) => Some(hold),
        _ => None,
    }
}

pub(super) fn acquire(
    state: &mut MemoryState,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    match other_hold(state, request.hold_ref)? {
        Some(hold) => {
            let (left, kept) = (Some(hold.left()), hold.holder.keeps());
            let first = None;
            Ok(Acquired::Busy { left, kept, first })
        }
        None => Ok(Acquired::Granted(grant(state, request), None)),
    }
}

pub(super) fn acquire_all(
    state: &mut MemoryState,
    requests: &[AcquireRequest<'_>],
) -> Result<AcquiredAll, Fault> {
    let mut is_kept = false;
    for request in requests {
        match other_hold(state, request.hold_ref)? {
            None => {}
            Some(hold) if hold.holder.keeps() => is_kept = true,
            Some(_) => return Ok(AcquiredAll::Busy),
        }
    }
    if is_kept {
        // A request for several locks does not notify a keeper. The requests for the single locks that follow do.
        return Ok(AcquiredAll::Apart);
    }
    let granted = requests.iter().map(|request| grant(state, request));
    Ok(AcquiredAll::Granted(granted.collect()))
}

/// Returns the hold of another holder, if there is one.
fn other_hold<'a>(
    state: &'a mut MemoryState,
    hold_ref: HoldRef<'_>,
) -> Result<Option<&'a mut Exclusive>, Fault> {
    match state.live(hold_ref.key) {
        None => Ok(None),
        Some(Entry::Exclusive(hold @ Exclusive { writes: false, .. })) => {
            Ok(Some(hold).filter(|hold| hold.holder != hold_ref.holder))
        }
        Some(found) => Err(foreign(
            hold_ref.key,
            found,
            AskedKind::Lock(hold_ref.key.kind()),
        )),
    }
}

pub(super) fn grant(state: &mut MemoryState, request: &AcquireRequest<'_>) -> Granted {
    put(state, request);
    state.granted(request)
}

fn put(state: &mut MemoryState, request: &AcquireRequest<'_>) {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let hold = Exclusive {
        holder,
        expires: clock::tick() + request.ttl.duration(),
        writes: key.kind() == Kind::Write,
    };
    state.put(key, Entry::Exclusive(hold));
}

pub(super) fn release(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    if hold(state, hold_ref.key).is_none_or(|hold| hold.holder != hold_ref.holder) {
        return Released::NotHeld;
    }
    state.locks.remove(hold_ref.key.raw());
    state.wake(hold_ref.key);
    Released::Done
}

pub(super) fn hand_over(
    state: &mut MemoryState,
    from: HolderId,
    to: &AcquireRequest<'_>,
    spare: u64,
) -> HandedOver {
    let HoldRef { key, holder, .. } = to.hold_ref;
    if hold(state, key).is_none_or(|hold| hold.holder != from && hold.holder != holder) {
        return HandedOver::NotHeld;
    }
    put(state, to);
    state.handed_over(to, spare)
}

pub(super) fn renew(state: &mut MemoryState, renewal: &Renewal) -> Renewed {
    let hold = hold(state, &renewal.key).filter(|hold| hold.holder == renewal.holder);
    renewed(hold.map(|hold| &mut hold.expires), renewal)
}
