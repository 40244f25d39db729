//! One holder at a time, served in the order in which they asked.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::exclusive;
use super::store::MemoryState;
use crate::backend::{
    AcquireRequest, Acquired, FIRST_WAITERS, Fault, HoldRef, QUEUE_LIFE, Released,
};
use crate::values::{HolderId, Key, clock};

/// A waiter in a queue.
pub(super) struct FairWaiter {
    holder: HolderId,
    /// From this time on, the waiter counts as dead at the head of the queue, unless it asks again.
    dead_at: Instant,
}

/// The waiters of a key, in order.
pub(super) type FairQueue = VecDeque<FairWaiter>;

/// Returns the name of the topic that wakes a waiter when its turn comes.
pub(super) fn own_topic(key: &Key, holder: HolderId) -> String {
    [key.raw(), "\0", &holder.text()].concat()
}

pub(super) fn acquire(
    state: &mut MemoryState,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let HoldRef { key, holder, .. } = request.hold_ref;
    let place = request.place();
    let swept = sweep(state, key, Some(place));
    let head = first(state, key);
    let mut left = exclusive::hold(state, key).map(|hold| hold.left());
    let mut kept = false;
    let own = exclusive::hold(state, key).is_some_and(|hold| hold.holder == holder);
    if own || head.is_none_or(|head| head == place) {
        match exclusive::acquire(state, request)? {
            Acquired::Busy {
                left: rest,
                kept: keeps,
                ..
            } => (left, kept) = (rest, keeps),
            granted => {
                leave(state, key, place);
                return Ok(granted);
            }
        }
    }
    if swept {
        wake_first(state, key);
    }
    if request.waits.is_none() {
        let first = None;
        return Ok(Acquired::Busy { left, kept, first });
    }
    let dead_at = clock::tick() + QUEUE_LIFE;
    let queue = state.queues.entry(key.raw().into()).or_default();
    match queue.iter_mut().find(|waiter| waiter.holder == place) {
        Some(waiter) => waiter.dead_at = dead_at,
        None => queue.push_back(FairWaiter {
            holder: place,
            dead_at,
        }),
    }
    let first = Some(first(state, key) == Some(place));
    Ok(Acquired::Busy { left, kept, first })
}

pub(super) fn release(state: &mut MemoryState, hold_ref: HoldRef<'_>) -> Released {
    let released = exclusive::release(state, hold_ref);
    let led = first(state, hold_ref.key) == Some(hold_ref.holder);
    let left = leave(state, hold_ref.key, hold_ref.holder);
    if released == Released::Done || led {
        sweep(state, hold_ref.key, None);
        wake_first(state, hold_ref.key);
    }
    if left { Released::Done } else { released }
}

/// Returns the number of waiters in the store's queue, and the ids of the first ones.
pub(super) fn waiters(state: &MemoryState, key: &Key) -> (u64, Vec<String>) {
    let queue = state.queues.get(key.raw()).into_iter().flatten();
    let first = queue.clone().take(FIRST_WAITERS);
    let first = first.map(|waiter| waiter.holder.text()).collect();
    (queue.count() as u64, first)
}

/// Wakes the next waiter, if the lock is free.
pub(super) fn wake_first(state: &mut MemoryState, key: &Key) {
    if state.live(key).is_none()
        && let Some(holder) = first(state, key)
    {
        state.wake_topic(&own_topic(key, holder));
    }
}

fn first(state: &MemoryState, key: &Key) -> Option<HolderId> {
    Some(state.queues.get(key.raw())?.front()?.holder)
}

/// Removes dead waiters from the head of the queue. The waiter that asks is alive.
fn sweep(state: &mut MemoryState, key: &Key, alive: Option<HolderId>) -> bool {
    let now = clock::tick();
    let mut swept = false;
    while let Some(queue) = state.queues.get_mut(key.raw())
        && let Some(head) = queue.front()
        && head.dead_at <= now
        && Some(head.holder) != alive
    {
        let holder = head.holder;
        swept = leave(state, key, holder);
    }
    swept
}

/// True if the holder was in the queue.
fn leave(state: &mut MemoryState, key: &Key, holder: HolderId) -> bool {
    let Some(queue) = state.queues.get_mut(key.raw()) else {
        return false;
    };
    let before = queue.len();
    queue.retain(|waiter| waiter.holder != holder);
    let left = queue.len() < before;
    if queue.is_empty() {
        state.queues.remove(key.raw());
    }
    left
}
