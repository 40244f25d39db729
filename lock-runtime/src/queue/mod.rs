//! The local queue of each key. One caller per key and process sends requests to the store. The other callers wait behind
//! it in the order in which they came, and cost no request.
//!
//! Invariants:
//! - A key has a state as long as a [`Front`] of it is there. The front belongs to the caller that asks the store, then to its
//!   hold, and then to the next waiter.
//! - A front that is dropped goes to the next waiter, so a cancelled future loses nothing.
//! - A caller that is not polled any more loses the front to the callers behind it ([`Waiter::look_at_front`]), also if none
//!   of them waits for long ([`LocalQueues::enter`]). Its front has an old number, so it changes nothing.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::Fault;
use crate::hold::{Hold, Offer, Tenure, Turn, refused};
use crate::sync::{Modelled, ModelledGuard, is_modelled};
use crate::values::{
    Counted, HoldOptions, Key, KeyMap, Kind, LockError, Moment, ShutdownCause, WaiterCap,
};

pub(crate) use crate::queue::front::Front;
pub(crate) use crate::queue::key_state::{KeyState, Successor};
pub(crate) use crate::queue::waiter::{Waiter, Waiting};

/// The number of shards. With this many mutexes, callers of different keys rarely wait for the same one. A model has one
/// shard, because each further mutex multiplies the orders of its threads.
fn shards() -> usize {
    if is_modelled() { 1 } else { 32 }
}

/// The local queues of one manager, in shards by the hash of the key. No two shards are locked at the same time.
pub(crate) struct LocalQueues {
    shards: Box<[Modelled<Shard>]>,
    max_per_key: usize,
    max_in_all: usize,
    /// After this time without a sign, a front counts as not polled. It is longer than the time between two answers of a
    /// caller that is polled.
    pub(crate) silence: Duration,
    waiting: Arc<AtomicUsize>,
}

/// The states of some keys.
pub(crate) struct Shard {
    keys: KeyMap<KeyState>,
    /// The number of callers of each key that wait in the store's queue instead.
    in_store_queue: KeyMap<usize>,
    /// The number of waiting callers in all shards, with those in the store's queue.
    waiting: Arc<AtomicUsize>,
    /// The last number of a waiter or a front. No number is given twice, because waiters and fronts may outlive their queue.
    last_number: u64,
    closed: bool,
}

impl Shard {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Changes the state of a key, and the count of waiting callers with it. Callers that come are counted by
    /// [`LocalQueues::admit`].
    fn change<T>(&mut self, key: &Key, change: impl FnOnce(&mut KeyState) -> T) -> Option<T> {
        let state = self.keys.get_mut(key)?;
        Some(counted(state, &self.waiting, change))
    }
}

/// Changes a state, and the count of waiting callers with it.
fn counted<T>(
    state: &mut KeyState,
    waiting: &AtomicUsize,
    change: impl FnOnce(&mut KeyState) -> T,
) -> T {
    let before = state.waiting();
    let changed = change(state);
    let after = state.waiting();
    // An uncontended cycle changes nothing, so it must not write a count that all keys share.
    match after.cmp(&before) {
        Less => _ = waiting.fetch_sub(before - after, Ordering::Relaxed),
        Greater => _ = waiting.fetch_add(after - before, Ordering::Relaxed),
        Equal => {}
    }
    changed
}

/// What a waiter gets when its time comes.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// The front of the queue: ask the store.
    Front(Front),
    /// The lock, handed over by the caller before.
    Held(Offer),
    /// The store admits readers: each asks for itself, without the front. Or the latch is open.
    Go,
}

/// Whether a caller that gives up at `gives_up` waits for the end of a rest. The timer of a rest may be late.
pub(crate) fn may_rest(now: Moment, gives_up: Option<Moment>, end: Moment) -> bool {
    !now.has_reached(end) && gives_up.is_none_or(|at| at.has_reached(end))
}

pub(crate) enum Entered {
    /// The queue was empty: the caller is at the front.
    Front(Front),
    /// The queue was empty, and this process kept the lock: the caller's turn has begun, and a shutdown waits for it.
    Held(Hold, Counted),
    /// The queue was empty. The tenure that this process kept cannot serve the caller, and is to be released.
    Unsuited(Arc<Tenure>, Box<Turn>),
    /// Other callers are before this one, which does not queue.
    Behind,
    Queued(Waiter),
}

impl LocalQueues {
    pub(crate) fn new(
        max_per_key: usize,
        max_in_all: usize,
        silence: Duration,
    ) -> Arc<LocalQueues> {
        let waiting: Arc<AtomicUsize> = Arc::default();
        let shard = |_| {
            Modelled::new(Shard {
                keys: KeyMap::default(),
                in_store_queue: KeyMap::default(),
                waiting: waiting.clone(),
                last_number: 0,
                closed: false,
            })
        };
        Arc::new(LocalQueues {
            shards: (0..shards()).map(shard).collect(),
            max_per_key,
            max_in_all,
            silence,
            waiting,
        })
    }

    /// Locks the shard of the key. A tenure's state is locked after it, never before it.
    pub(crate) fn lock(&self, key: &Key) -> ModelledGuard<'_, Shard> {
        // The hash tables use the first and the last bits of the hash.
        let place = (key.digest() >> 32) % self.shards.len() as u64;
        self.shards[usize::try_from(place).unwrap_or(0)].lock()
    }

    /// Takes the front at `key` if this process neither holds the key nor asks for it. `may_wait`: whether the caller goes on
    /// waiting until then without the front, as it does during a rest.
    pub(crate) fn try_enter(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
        may_wait: impl FnOnce(Moment) -> bool,
    ) -> Option<Front> {
        let shard = &mut *self.lock(key);
        let number = shard.number();
        if let Some(state) = shard.keys.get_mut(key) {
            if !state.pass_rest(number, may_wait) {
                return None;
            }
        } else {
            shard.keys.insert(key.clone(), KeyState::new(number));
        }
        Some(Front::new(self, key, number))
    }

    /// Takes the front at `key` or its idle tenure, or, if the caller `queues`, a place in its queue. `gives_up`: the end of
    /// the caller's wait, if there is one. A caller that would give up during a rest takes the front.
    ///
    /// # Errors
    /// [`LockError::ShuttingDown`]; [`LockError::TooManyWaiters`].
    pub(crate) fn enter(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
        hold_options: HoldOptions,
        now: Moment,
        gives_up: Option<Moment>,
        queues: bool,
    ) -> Result<Entered, LockError> {
        let mut locked = self.lock(key);
        let shard = &mut *locked;
        if shard.closed {
            return Err(closed(key));
        }
        let number = shard.number();
        let front = || Entered::Front(Front::new(self, key, number));
        let Some(state) = shard.keys.get_mut(key) else {
            shard.keys.insert(key.clone(), KeyState::new(number));
            return Ok(front());
        };
        if let Some(idle) = state.take_idle(&hold_options, now) {
            return Ok(idle);
        }
        if state.pass_rest(number, |end| may_rest(now, gives_up, end)) {
            return Ok(front());
        }
        if state.look(now, self.silence, number) {
            drop(locked);
            // The front goes to the first waiter. Without one, this caller is the first.
            drop(Front::new(self, key, number));
            return self.enter(key, hold_options, now, gives_up, queues);
        }
        if !queues {
            return Ok(Entered::Behind);
        }
        self.admit(key, state.waiting())?;
        let (ticket, given) = oneshot::channel();
        let caller = Successor {
            ticket,
            hold_options,
        };
        state.queue(number, caller);
        Ok(Entered::Queued(Waiter {
            queues: self.clone(),
            key: key.clone(),
            number,
            given,
            last_seen: state.sign(),
        }))
    }

    /// Counts a caller that waits in the store's queue, if the caps allow one more.
    pub(crate) fn join_store_queue(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
    ) -> Result<Waiting, LockError> {
        let shard = &mut *self.lock(key);
        if shard.closed {
            return Err(closed(key));
        }
        let in_store_queue = shard.in_store_queue.get(key).copied().unwrap_or(0);
        self.admit(key, in_store_queue)?;
        shard.in_store_queue.insert(key.clone(), in_store_queue + 1);
        Ok(Waiting {
            queues: self.clone(),
            key: key.clone(),
        })
    }

    /// Returns `true` if no caller of this process waits for the key in the store's queue.
    pub(crate) fn store_queue_is_empty(&self, key: &Key) -> bool {
        !self.lock(key).in_store_queue.contains_key(key)
    }

    /// Returns the number of keys with a queue here, of keys with callers in the store's queue, and of waiting callers.
    #[cfg(simulation)]
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let mut sizes = [0, 0, self.waiting()];
        for shard in &self.shards {
            let shard = shard.lock();
            sizes[0] += shard.keys.len();
            sizes[1] += shard.in_store_queue.len();
        }
        sizes
    }

    /// Returns the number of waiting callers for each key that has any.
    pub(crate) fn waited_for(&self) -> Vec<(Arc<Key>, usize)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let here = shard.keys.iter().map(|(key, state)| (key, state.waiting()));
            let there = shard
                .in_store_queue
                .iter()
                .map(|(key, count)| (key, *count));
            let waited_for = here.chain(there).filter(|(_, callers)| *callers > 0);
            all.extend(waited_for.map(|(key, callers)| (key.clone(), callers)));
        }
        all
    }

    /// Returns the number of waiting callers of all keys.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts one more waiting caller, if the caps allow that. `for_key`: the number of callers that wait for the key.
    ///
    /// # Errors
    /// [`LockError::TooManyWaiters`].
    fn admit(&self, key: &Key, for_key: usize) -> Result<(), LockError> {
        let one_more = |in_all| (in_all < self.max_in_all).then_some(in_all + 1);
        let (limit, cap) = if for_key >= self.max_per_key {
            (self.max_per_key, WaiterCap::PerKey)
        } else if self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_err()
        {
            (self.max_in_all, WaiterCap::InAll)
        } else {
            return Ok(());
        };
        Err(LockError::TooManyWaiters {
            name: key.name().to_owned(),
            limit,
            cap,
        })
    }

    /// Returns `true` if this process holds the key or asks for it.
    pub(crate) fn is_open(&self, key: &Key) -> bool {
        self.lock(key).keys.contains_key(key)
    }

    /// Returns the number of local callers that queue for the name of `key`, whatever the kind.
    pub(crate) fn waiters(&self, key: &Key) -> usize {
        let queued = |kind| {
            let key = key.as_kind(kind);
            let shard = self.lock(&key);
            let here = shard.keys.get(&key).map_or(0, KeyState::waiting);
            here + shard.in_store_queue.get(&key).copied().unwrap_or(0)
        };
        Kind::ALL.into_iter().map(queued).sum()
    }

    /// Closes the tickets of all waiters, and admits no more. The caller then gives back the idle tenures: none becomes idle
    /// later.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut guard = shard.lock();
            let shard = &mut *guard;
            shard.closed = true;
            let close = |state| counted(state, &shard.waiting, KeyState::close);
            let closed: Vec<_> = shard.keys.values_mut().map(close).collect();
            drop(guard);
            // A waiter whose channel closes returns `ShuttingDown`. A dropped place leaves the store's list.
            drop(closed);
        }
    }

    /// Takes a tenure that is not idle any more out of its queue. Its front is in use from now on.
    pub(crate) fn idles_no_more(&self, tenure: &Tenure, heard: bool) {
        let change = |state: &mut KeyState| state.idles_no_more(tenure, heard);
        self.lock(tenure.key()).change(tenure.key(), change);
    }

    /// Ends all idle tenures. Returns each with the turn that has its front.
    pub(crate) fn end_all_idle(&self, now: Moment) -> Vec<(Arc<Tenure>, Turn)> {
        let mut ended = Vec::new();
        for shard in &self.shards {
            let states = &mut shard.lock().keys;
            ended.extend(states.values_mut().filter_map(|state| state.end_idle(now)));
        }
        ended
    }

    /// Returns `true` if this process keeps the key and none of its callers holds it.
    pub(crate) fn is_kept(&self, key: &Key) -> bool {
        self.lock(key).keys.get(key).is_some_and(KeyState::is_idle)
    }

    fn fault(&self, key: &Key) -> Option<Fault> {
        self.lock(key).keys.get(key)?.fault()
    }
}

fn closed(key: &Key) -> LockError {
    refused(key, ShutdownCause::Shutdown)
}

pub(crate) mod front;
mod key_state;
#[cfg(test)]
mod models;
pub(crate) mod slice;
#[cfg(test)]
mod tests;
pub(crate) mod waiter;
