//! Many readers or one writer. Each has a lease of its own; a lock whose last lease has run out is free.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::store::{Entry, MemoryState, foreign, left, renewed};
use crate::backend::{
    AcquireRequest, Acquired, AskedKind, Fault, HandedOver, HoldRef, READERS_KEPT_OUT, Released,
    Renewal, Renewed, Snapshot,
};
use crate::values::{HolderId, Key, Kind, LockMode, clock};

pub(super) struct ReadWrite {
    writer: Option<(HolderId, Instant)>,
    readers: HashMap<HolderId, Instant>,
}

impl ReadWrite {
    fn leases(&self) -> impl Iterator<Item = (HolderId, Instant)> {
        let readers = self
            .readers
            .iter()
            .map(|(holder, expires)| (*holder, *expires));
        self.writer.into_iter().chain(readers)
    }

    fn live(&self) -> impl Iterator<Item = (HolderId, Instant)> {
        let now = clock::tick();
        self.leases().filter(move |(_, expires)| *expires > now)
    }

    /// Returns the end of the last lease.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.leases().map(|(_, expires)| expires).max()
    }

    pub(super) fn holders(&self) -> Vec<HolderId> {
        self.live().map(|(holder, _)| holder).collect()
    }

    pub(super) fn seen(&self) -> Option<Snapshot> {
        let (holder, _) = self.live().next()?;
        let (mode, readers) = match self.writer {
            Some(_) => (LockMode::Write, 0),
            None => (LockMode::Read, self.live().count() as u64),
        };
        Some(Snapshot {
            holder: Some(holder.text()),
            left: self.expires().map(left),
            readers,
            ..Snapshot::of(mode)
        })
    }
}

fn lock<'a>(state: &'a mut MemoryState, key: &Key) -> Option<&'a mut ReadWrite> {
    match state.live(key)? {
        Entry::ReadWrite(lock) => Some(lock),
        _ => None,
    }
}

/// Returns the time for which the request is blocked by others, if it is. A blocked writer that waits also keeps new
/// readers out.
fn blocked(state: &mut MemoryState, request: &AcquireRequest<'_>) -> Option<Duration> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let now = clock::tick();
    let (mut writes, mut until) = (false, None);
    if let Some(lock) = lock(state, key) {
        if lock.live().any(|(own, _)| own == holder) {
            return None;
        }
        writes = lock.writer.is_some();
        until = lock.live().map(|(_, expires)| expires).max();
    }
    if writes {
        return until.map(left);
    }
    if key.kind() == Kind::Read {
        let writer_waits = state.writers_waiting.get(key.raw());
        return writer_waits
            .filter(|until| **until > now)
            .copied()
            .map(left);
    }
    if let (Some(_), Some(waits)) = (until, request.waits) {
        let waits = now + waits.min(READERS_KEPT_OUT);
        let until = state
            .writers_waiting
            .entry(key.raw().into())
            .or_insert(waits);
        *until = waits.max(*until);
    }
    until.map(left)
}

pub(super) fn acquire(
    state: &mut MemoryState,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    match state.live(key) {
        None | Some(Entry::ReadWrite(_)) => {}
        Some(found) => return Err(foreign(key, found, AskedKind::Lock(key.kind()))),
    }
    if let Some(left) = blocked(state, request) {
        return Ok(Acquired::busy(Some(left)));
    }
    let expires = clock::tick() + request.ttl.duration();
    if key.kind() == Kind::Write {
        // Any reader that is left is dead: a live reader would have refused the writer.
        let writer = Some((holder, expires));
        let readers = HashMap::new();
        state.put(key, Entry::ReadWrite(ReadWrite { writer, readers }));
        state.writers_waiting.remove(key.raw());
    } else if let Some(lock) = lock(state, key) {
        let lease = lock.readers.entry(holder).or_insert(expires);
        *lease = expires.max(*lease);
    } else {
        let readers = HashMap::from([(holder, expires)]);
        let writer = None;
        state.put(key, Entry::ReadWrite(ReadWrite { writer, readers }));
    }
    Ok(Acquired::Granted(state.granted(request), None))
}

/// Takes out whatever the holder has: a write may have become a read.
pub(super) fn release(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let Some(lock) = lock(state, hold_ref.key) else {
        return Released::NotHeld;
    };
    let wrote = lock
        .writer
        .take_if(|(writer, _)| *writer == hold_ref.holder)
        .is_some();
    let read = lock.readers.remove(&hold_ref.holder).is_some();
    if !wrote && !read {
        return Released::NotHeld;
    }
    lock.readers.retain(|_, expires| *expires > clock::tick());
    if lock.leases().next().is_none() {
        state.locks.remove(hold_ref.key.raw());
        state.wake(hold_ref.key);
    }
    Released::Done
}

pub(super) fn downgrade(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let Some(lock) = lock(state, hold_ref.key) else {
        return Released::NotHeld;
    };
    if let Some((writer, expires)) = lock
        .writer
        .take_if(|(writer, _)| *writer == hold_ref.holder)
    {
        lock.readers.insert(writer, expires);
        state.wake(hold_ref.key);
        return Released::Done;
    }
    if lock.readers.contains_key(&hold_ref.holder) {
        Released::Done
    } else {
        Released::NotHeld
    }
}

/// Hands the lock from one writer to the next.
pub(super) fn hand_over(
    state: &mut MemoryState,
    from: HolderId,
    to: &AcquireRequest<'_>,
    spare: u64,
) -> HandedOver {
    let HoldRef { key, holder, .. } = to.hold_ref;
    let Some(lock) = lock(state, key) else {
        return HandedOver::NotHeld;
    };
    if !matches!(lock.writer, Some((writer, _)) if writer == from || writer == holder) {
        return HandedOver::NotHeld;
    }
    lock.writer = Some((holder, clock::tick() + to.ttl.duration()));
    state.handed_over(to, spare)
}

pub(super) fn renew(state: &mut MemoryState, renewal: &Renewal) -> Renewed {
    let lease = lock(state, &renewal.key).and_then(|lock| {
        let writer = lock.writer.as_mut().filter(|(id, _)| *id == renewal.holder);
        let lease = writer.map(|(_, expires)| expires);
        lease.or_else(|| lock.readers.get_mut(&renewal.holder))
    });
    renewed(lease.filter(|expires| **expires > clock::tick()), renewal)
}
