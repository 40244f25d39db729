//! The local queue of each key. One caller per key and process sends requests to the store. The other callers wait behind
//! it in the order in which they came, and cost no request.
//!
//! Invariants:
//! - A queue is there as long as a [`Head`] of it is there. The caller at the front owns the head. The head goes from the
//!   caller to its hold, and from the hold to the next waiter.
//! - A head that is dropped goes to the next waiter, so a cancelled future loses nothing.
//! - A caller at the front that is not polled any more loses its head to the waiters behind it ([`Waiter::look_at_head`]).
//!   Its old head then has another number than the queue, and changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, oneshot};

use crate::backend::Fault;
use crate::hold::{Hold, Offer, Tenure, Turn, refused};
use crate::queue::slice::Slice;
use crate::release::place::Place;
use crate::sync::{Modelled, ModelledGuard, is_modelled};
use crate::values::{HoldOptions, Key, KeyMap, Kind, LockError, Moment, ShutdownCause, WaiterCap};

pub(crate) use crate::queue::head::{Head, Successor};
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
    waiting: Arc<AtomicUsize>,
}

/// The queues of some keys.
struct Shard {
    queues: KeyMap<KeyQueue>,
    /// The number of callers of each key that wait in the store's queue instead.
    in_store_queue: KeyMap<usize>,
    /// The number of waiting callers in all shards, with those in the store's queue.
    waiting: Arc<AtomicUsize>,
    /// The last number of a waiter or a head. No number is given twice, because waiters and heads may outlive their queue.
    next_number: u64,
    closed: bool,
}

/// The queue of a key that this process holds or asks for.
#[derive(Default)]
struct KeyQueue {
    /// The number of the current head. A head with another number was passed over, and changes nothing.
    head: u64,
    /// Whether the head belongs to a caller that waits, and that is counted as waiting.
    head_waits: bool,
    /// The number of answers that the callers at the head got from the store. It grows while the caller is polled.
    signs: u64,
    /// The tenure of a lock that this process keeps while no caller holds it. The tenure has the head.
    idle: Option<Arc<Tenure>>,
    /// The waiters by number, and so in the order of arrival.
    waiters: BTreeMap<u64, InQueue>,
    slice: Slice,
    /// The end of a rest: until then, the head waits only so that other processes ask first.
    rests_until: Option<Moment>,
    /// The place on the store's list that the last caller at the head left to the next one.
    place: Option<Box<Place>>,
    /// The fault of the last request of a head. `None` after an answer. Boxed, because each held key has a queue.
    fault: Option<Box<Fault>>,
    /// Whether the store has answered since the queue opened, and the signal for callers that wait for the first answer.
    heard: bool,
    awaited: Option<Arc<Notify>>,
    /// The label of the local hold, if a hold owns the head, and whether a warning about a long wait was logged.
    held_by: Option<&'static str>,
    warned: bool,
}

impl Shard {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Takes out the next waiter.
    fn pop(&mut self, key: &Key) -> Option<InQueue> {
        let queue = self.queues.get_mut(key)?;
        let (_, waiter) = queue.waiters.pop_first()?;
        self.wait_no_more(1);
        Some(waiter)
    }

    /// Removes callers of this shard from the count of waiting callers.
    fn wait_no_more(&self, callers: usize) {
        self.waiting.fetch_sub(callers, Ordering::Relaxed);
    }

    /// Adds the caller at the head to the count of waiting callers, or removes it.
    fn count_head(&mut self, key: &Key, waits: bool) {
        if let Some(queue) = self.queues.get_mut(key) {
            // An uncontended cycle changes nothing, so it must not write a count that all keys share.
            match (std::mem::replace(&mut queue.head_waits, waits), waits) {
                (false, true) => _ = self.waiting.fetch_add(1, Ordering::Relaxed),
                (true, false) => self.wait_no_more(1),
                _ => {}
            }
        }
    }
}

impl KeyQueue {
    /// Returns the number of waiting callers, with the one at the head.
    fn waiting(&self) -> usize {
        self.waiters.len() + usize::from(self.head_waits)
    }

    /// Notes that a caller holds the lock from now on, and with it the head.
    fn held_by(&mut self, label: &'static str) {
        self.held_by = Some(label);
        self.warned = false;
        self.heard_from_store(None);
    }

    fn heard_from_store(&mut self, fault: Option<Fault>) {
        self.fault = fault.map(Box::new);
        self.heard = true;
        self.signs += 1;
        if let Some(awaited) = self.awaited.take() {
            awaited.notify_waiters();
        }
    }
}

/// The queue of a key, locked with the others of its shard.
pub(crate) struct Locked<'a>(ModelledGuard<'a, Shard>);

struct InQueue {
    ticket: oneshot::Sender<Ticket>,
    hold_options: HoldOptions,
}

/// What a waiter gets when its time comes.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// The head of the queue: ask the store.
    Head(Head),
    /// The lock, handed over by the caller before.
    Held(Offer),
    /// The store admits readers: each asks for itself, without the head. Or the latch is open.
    Go,
}

pub(crate) enum Entered {
    /// The queue was empty: the caller is at the front.
    Head(Head),
    /// The queue was empty, and this process kept the lock: the caller's turn has begun.
    Held(Hold),
    /// The queue was empty. The tenure that this process kept cannot serve the caller, and is to be released.
    Unsuited(Arc<Tenure>, Box<Turn>),
    Queued(Waiter),
}

impl LocalQueues {
    pub(crate) fn new(max_per_key: usize, max_in_all: usize) -> Arc<LocalQueues> {
        let waiting: Arc<AtomicUsize> = Arc::default();
        let shard = |_| {
            Modelled::new(Shard {
                queues: KeyMap::default(),
                in_store_queue: KeyMap::default(),
                waiting: waiting.clone(),
                next_number: 0,
                closed: false,
            })
        };
        Arc::new(LocalQueues {
            shards: (0..shards()).map(shard).collect(),
            max_per_key,
            max_in_all,
            waiting,
        })
    }

    /// Locks the shard of the key.
    fn shard(&self, key: &Key) -> ModelledGuard<'_, Shard> {
        // The hash tables use the first and the last bits of the hash.
        let place = (key.digest() >> 32) % self.shards.len() as u64;
        self.shards[usize::try_from(place).unwrap_or(0)].lock()
    }

    /// Takes the head at `key` if this process neither holds the key nor asks for it.
    pub(crate) fn try_enter(self: &Arc<LocalQueues>, key: &Arc<Key>) -> Option<Head> {
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        if shard.queues.contains_key(key) {
            // The caller does not wait.
            return self.pass_rest(shard, key, |_| false);
        }
        Some(self.open(shard, key))
    }

    /// Like [`enter`](LocalQueues::enter), for a caller that does not queue: `None` if another caller is before it.
    pub(crate) fn enter_at_once(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
        hold_options: &HoldOptions,
        now: Moment,
    ) -> Option<Entered> {
        self.take_front(&mut self.shard(key), key, hold_options, now, Some(now))
    }

    /// Takes the head or the idle tenure, if no other caller is before this one, which gives up at `gives_up`.
    fn take_front(
        self: &Arc<LocalQueues>,
        shard: &mut Shard,
        key: &Arc<Key>,
        hold_options: &HoldOptions,
        now: Moment,
        gives_up: Option<Moment>,
    ) -> Option<Entered> {
        let Some(queue) = shard.queues.get_mut(key) else {
            return Some(Entered::Head(self.open(shard, key)));
        };
        if let Some(entered) = queue.take_idle(hold_options, now) {
            return Some(entered);
        }
        // The timer of a rest may be late.
        let may_wait = |end| !now.has_reached(end) && gives_up.is_none_or(|at| at.has_reached(end));
        self.pass_rest(shard, key, may_wait).map(Entered::Head)
    }

    /// Passes over a head that rests, unless others wait, or the caller may wait for the end of the rest: a rest must not make
    /// a free lock look busy.
    fn pass_rest(
        self: &Arc<LocalQueues>,
        shard: &mut Shard,
        key: &Arc<Key>,
        may_wait: impl FnOnce(Moment) -> bool,
    ) -> Option<Head> {
        let Shard {
            queues,
            next_number,
            ..
        } = shard;
        let queue = queues.get_mut(key)?;
        let end = queue.rests_until.filter(|_| queue.waiters.is_empty())?;
        if may_wait(end) {
            return None;
        }
        *next_number += 1;
        (queue.head, queue.rests_until) = (*next_number, None);
        Some(Head::new(self, key, queue.head))
    }

    /// Locks the queue of the key. A tenure's state is locked after the queue, never before it.
    pub(crate) fn lock(&self, key: &Key) -> Locked<'_> {
        Locked(self.shard(key))
    }

    /// Opens the queue of a key, and returns its first head.
    fn open(self: &Arc<LocalQueues>, shard: &mut Shard, key: &Arc<Key>) -> Head {
        let head = shard.number();
        let queue = KeyQueue {
            head,
            ..KeyQueue::default()
        };
        shard.queues.insert(key.clone(), queue);
        Head::new(self, key, head)
    }

    /// Takes the head at `key`, or a place in its queue. `gives_up`: the end of the caller's wait, if there is one. A caller that
    /// would give up during a rest takes the head.
    pub(crate) fn enter(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
        hold_options: HoldOptions,
        now: Moment,
        gives_up: Option<Moment>,
    ) -> Result<Entered, LockError> {
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        if shard.closed {
            return Err(closed(key));
        }
        if let Some(entered) = self.take_front(shard, key, &hold_options, now, gives_up) {
            return Ok(entered);
        }
        let number = shard.number();
        let Some(queue) = shard.queues.get_mut(key) else {
            return Ok(Entered::Head(self.open(shard, key)));
        };
        self.admit(key, queue.waiting())?;
        let (ticket, given) = oneshot::channel();
        let waiter = InQueue {
            ticket,
            hold_options,
        };
        queue.waiters.insert(number, waiter);
        Ok(Entered::Queued(Waiter {
            queues: self.clone(),
            key: key.clone(),
            number,
            given,
            last_seen: None,
            is_out: false,
        }))
    }

    /// Counts a caller that waits in the store's queue, if the caps allow one more.
    pub(crate) fn join_store_queue(
        self: &Arc<LocalQueues>,
        key: &Arc<Key>,
    ) -> Result<Waiting, LockError> {
        let mut shard = self.shard(key);
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
        !self.shard(key).in_store_queue.contains_key(key)
    }

    /// Returns the number of keys with a queue here, of keys with callers in the store's queue, and of waiting callers.
    #[cfg(simulation)]
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let mut sizes = [0, 0, self.waiting()];
        for shard in &self.shards {
            let shard = shard.lock();
            sizes[0] += shard.queues.len();
            sizes[1] += shard.in_store_queue.len();
        }
        sizes
    }

    /// Returns the number of waiting callers for each key that has any.
    pub(crate) fn waited_for(&self) -> Vec<(Arc<Key>, usize)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let here = shard
                .queues
                .iter()
                .map(|(key, queue)| (key, queue.waiting()));
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
        self.shard(key).queues.contains_key(key)
    }

    /// Returns the number of local callers that queue for the name of `key`, whatever the kind.
    pub(crate) fn waiters(&self, key: &Key) -> usize {
        let queued = |kind| {
            let key = key.as_kind(kind);
            let shard = self.shard(&key);
            let here = shard.queues.get(&key).map_or(0, KeyQueue::waiting);
            here + shard.in_store_queue.get(&key).copied().unwrap_or(0)
        };
        Kind::ALL.into_iter().map(queued).sum()
    }

    /// Closes the tickets of all waiters, and admits no more. The caller then gives back the idle tenures: none becomes idle
    /// later.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.closed = true;
            let queues: Vec<_> = shard
                .queues
                .values_mut()
                .map(|queue| {
                    let waiters = std::mem::take(&mut queue.waiters);
                    (waiters, queue.place.take())
                })
                .collect();
            let waiters = queues.iter().map(|(waiters, _)| waiters.len());
            shard.wait_no_more(waiters.sum());
            drop(shard);
            // A waiter whose channel closes returns `ShuttingDown`. A dropped place leaves the store's list.
            drop(queues);
        }
    }

    fn with<T>(&self, key: &Key, read: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.shard(key).queues.get_mut(key).map(read)
    }

    fn fault(&self, key: &Key) -> Option<Fault> {
        self.with(key, |queue| queue.fault.as_deref().cloned())
            .flatten()
    }
}

impl fmt::Debug for LocalQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |shard: &Modelled<Shard>| shard.lock().queues.len();
        let keys: usize = self.shards.iter().map(keys).sum();
        f.debug_struct("LocalQueues")
            .field("keys", &keys)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

pub(crate) fn closed(key: &Key) -> LockError {
    refused(key, ShutdownCause::Shutdown)
}

pub(crate) mod head;
pub(crate) mod idle;
#[cfg(test)]
mod models;
pub(crate) mod slice;
#[cfg(test)]
mod tests;
pub(crate) mod waiter;
