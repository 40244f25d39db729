//! Many readers or one writer. Each reader has a lease of its own; a lock whose last lease has run out is free. A writer is
//! an exclusive hold.

use std::collections::HashMap;

use tokio::time::Instant;

use super::exclusive;
use super::store::{Entry, MemoryState, foreign, left, renewed};
use crate::backend::{
    AcquireRequest, Acquired, AskedKind, Fault, HoldRef, READERS_KEPT_OUT, Released, Renewal,
    Renewed, Snapshot,
};
use crate::values::{HolderId, Key, Kind, LockMode, clock};

/// The readers, and the ends of their leases. There is one reader at least.
pub(super) type Readers = HashMap<HolderId, Instant>;

/// Returns the readers whose lease is not over.
pub(super) fn live(readers: &Readers) -> Vec<HolderId> {
    let now = clock::tick();
    let live = readers.iter().filter(|(_, expires)| **expires > now);
    live.map(|(holder, _)| *holder).collect()
}

pub(super) fn seen(readers: &Readers) -> Option<Snapshot> {
    let live = live(readers);
    Some(Snapshot {
        holder: Some(live.first()?.text()),
        left: last_end(readers).map(left),
        readers: live.len() as u64,
        ..Snapshot::of(LockMode::Read)
    })
}

/// Returns the end of the last lease.
pub(super) fn last_end(readers: &Readers) -> Option<Instant> {
    readers.values().max().copied()
}

fn readers<'a>(state: &'a mut MemoryState, key: &Key) -> Option<&'a mut Readers> {
    match state.live(key)? {
        Entry::Readers(readers) => Some(readers),
        _ => None,
    }
}

pub(super) fn acquire(
    state: &mut MemoryState,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let (now, writes) = (clock::tick(), key.kind() == Kind::Write);
    let mut by_readers = false;
    let (has_it, held_until) = match state.live(key) {
        None => (false, None),
        Some(Entry::Exclusive(hold)) if hold.writes => (hold.holder == holder, Some(hold.expires)),
        Some(Entry::Readers(readers)) => {
            by_readers = writes;
            let has_it = readers.get(&holder).is_some_and(|expires| *expires > now);
            (has_it, last_end(readers).filter(|_| writes))
        }
        Some(found) => return Err(foreign(key, found, AskedKind::Lock(key.kind()))),
    };
    // A writer that waits keeps new readers out, also of a free lock.
    let kept_out = state.writers_waiting.get(key.raw()).copied();
    let kept_out = kept_out.filter(|until| !writes && *until > now);
    if let Some(until) = held_until.or(kept_out)
        && !has_it
    {
        if by_readers && let Some(waits) = request.waits {
            let waits = now + waits.min(READERS_KEPT_OUT);
            let kept_out = state.writers_waiting.entry(key.raw().into());
            let kept_out = kept_out.or_insert(waits);
            *kept_out = waits.max(*kept_out);
        }
        return Ok(Acquired::busy(Some(left(until))));
    }
    if writes {
        // Any reader that is left is dead: a live reader would have refused the writer.
        state.writers_waiting.remove(key.raw());
        return Ok(Acquired::Granted(exclusive::grant(state, request), None));
    }
    let expires = now + request.ttl.duration();
    match readers(state, key) {
        Some(readers) => {
            let lease = readers.entry(holder).or_insert(expires);
            *lease = expires.max(*lease);
        }
        None => state.put(key, Entry::Readers(Readers::from([(holder, expires)]))),
    }
    Ok(Acquired::Granted(state.granted(request), None))
}

/// Takes out whatever the holder has: a write may have become a read.
pub(super) fn release(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let Some(readers) = readers(state, hold_ref.key) else {
        return exclusive::release(state, hold_ref);
    };
    if readers.remove(&hold_ref.holder).is_none() {
        return Released::NotHeld;
    }
    readers.retain(|_, expires| *expires > clock::tick());
    if readers.is_empty() {
        state.locks.remove(hold_ref.key.raw());
        state.wake(hold_ref.key);
    }
    Released::Done
}

pub(super) fn downgrade(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let HoldRef { key, holder, .. } = hold_ref;
    if let Some(hold) = exclusive::hold(state, key).filter(|hold| hold.holder == holder) {
        let readers = Readers::from([(holder, hold.expires)]);
        state.put(key, Entry::Readers(readers));
        state.wake(key);
        return Released::Done;
    }
    match readers(state, key) {
        Some(readers) if readers.contains_key(&holder) => Released::Done,
        _ => Released::NotHeld,
    }
}

pub(super) fn renew(state: &mut MemoryState, renewal: &Renewal) -> Renewed {
    let Some(readers) = readers(state, &renewal.key) else {
        return exclusive::renew(state, renewal);
    };
    let lease = readers.get_mut(&renewal.holder);
    renewed(lease.filter(|expires| **expires > clock::tick()), renewal)
}
