//! Semaphores: free permits, and those that are leased.

use std::collections::HashMap;
use std::num::NonZeroU64;

use tokio::time::Instant;

use super::store::{Entry, FOR_EVER, MemoryState, foreign, left, renewed};
use crate::backend::{
    AcquireRequest, Acquired, AskedKind, CounterKind, Fault, Granted, HoldRef, Released, Renewal,
    Renewed, Snapshot,
};
use crate::values::{HolderId, Key, clock};

#[derive(Default)]
pub(super) struct Permits {
    /// Below zero if more were taken away than were free.
    pub(super) free: i64,
    leases: HashMap<HolderId, Leased>,
    /// The number that a request has set it to.
    pub(super) all_by_request: Option<i64>,
}

struct Leased {
    permits: u32,
    expires: Instant,
}

impl Permits {
    pub(super) fn new(free: i64) -> Permits {
        Permits {
            free,
            ..Permits::default()
        }
    }

    /// Returns the semaphore that a request sets if it names the number of permits in all.
    fn by_request(in_all: Option<NonZeroU64>) -> Result<Permits, Fault> {
        let all = in_all.ok_or(Fault::NotSet)?.get();
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        Ok(Permits {
            all_by_request: Some(all),
            ..Permits::new(all)
        })
    }

    pub(super) fn is_held(&self) -> bool {
        let now = clock::tick();
        self.leases.values().any(|lease| lease.expires > now)
    }

    /// Takes back the permits whose lease is over. True if there were any.
    pub(super) fn reclaim(&mut self) -> bool {
        let now = clock::tick();
        let before = self.leases.len();
        let free = &mut self.free;
        self.leases.retain(|_, lease| {
            let kept = lease.expires > now;
            if !kept {
                *free += i64::from(lease.permits);
            }
            kept
        });
        self.leases.len() < before
    }

    pub(super) fn leased(&self) -> i64 {
        self.leases
            .values()
            .map(|lease| i64::from(lease.permits))
            .sum()
    }

    fn first_end(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.expires).min()
    }

    pub(super) fn seen(&self) -> Snapshot {
        let leased = u64::try_from(self.leased()).unwrap_or(0);
        Snapshot {
            left: self.first_end().map(left),
            ..Snapshot::of_permits(leased, Some(self.free))
        }
    }

    /// Returns when the semaphore is no longer needed. A semaphore that was set by hand is needed for ever. A semaphore
    /// that a request has set is not needed while all permits are free: the next request sets it again.
    pub(super) fn expires(&self) -> Instant {
        let now = clock::tick();
        if self.all_by_request == Some(self.free + self.leased()) {
            let ends = self.leases.values().map(|lease| lease.expires);
            ends.max().unwrap_or(now)
        } else {
            now + FOR_EVER
        }
    }

    /// Gives back every leased permit. Returns the holders that had them.
    pub(super) fn give_back_all(&mut self) -> Vec<HolderId> {
        self.free += self.leased();
        self.leases.drain().map(|(holder, _)| holder).collect()
    }
}

/// The semaphore at the key, if one was set up.
pub(super) fn permits<'a>(
    state: &'a mut MemoryState,
    key: &Key,
    kind: CounterKind,
) -> Result<Option<&'a mut Permits>, Fault> {
    match state.live(key) {
        None => Ok(None),
        Some(Entry::Permits(permits)) => {
            permits.reclaim();
            Ok(Some(permits))
        }
        Some(found) => Err(foreign(key, found, AskedKind::Counter(kind))),
    }
}

pub(super) fn acquire(
    state: &mut MemoryState,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let HoldRef {
        key,
        holder,
        permits: wanted,
        ..
    } = request.hold_ref;
    let need = i64::from(wanted);
    let mut set = None;
    let permits = match permits(state, key, CounterKind::Semaphore)? {
        Some(permits) => permits,
        None => set.insert(Permits::by_request(request.in_all)?),
    };
    // A request that was sent twice first returns the permits that it took the first time.
    let has = permits.leases.remove(&holder);
    permits.free += has.map_or(0, |lease| i64::from(lease.permits));
    if need > permits.free {
        let all = permits.free + permits.leased();
        if need > all {
            return Err(Fault::not_so_many_permits(key.name(), Some(all)));
        }
        let left = permits.first_end().map(left);
        return Ok(Acquired::busy(left));
    }
    permits.free -= need;
    let lease = Leased {
        permits: wanted,
        expires: clock::tick() + request.ttl.duration(),
    };
    permits.leases.insert(holder, lease);
    if let Some(set) = set {
        state.put(key, Entry::Permits(set));
    }
    let granted = Granted::leased(None, request.asked_at);
    Ok(Acquired::Granted(granted, None))
}

pub(super) fn release(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let Ok(Some(permits)) = permits(state, hold_ref.key, CounterKind::Semaphore) else {
        return Released::NotHeld;
    };
    let Some(lease) = permits.leases.remove(&hold_ref.holder) else {
        return Released::NotHeld;
    };
    permits.free += i64::from(lease.permits);
    state.wake(hold_ref.key);
    Released::Done
}

pub(super) fn renew(state: &mut MemoryState, renewal: &Renewal) -> Renewed {
    let permits = permits(state, &renewal.key, CounterKind::Semaphore);
    let permits = permits.ok().flatten();
    let lease = permits.and_then(|permits| permits.leases.get_mut(&renewal.holder));
    let lease = lease.filter(|lease| lease.permits == renewal.permits);
    renewed(lease.map(|lease| &mut lease.expires), renewal)
}
