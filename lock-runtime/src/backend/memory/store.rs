//! The state of a memory store, and the operations that every kind shares.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::counters::LastId;
use super::directory::ClientEntry;
use super::exclusive::Exclusive;
use super::fair;
use super::permits::Permits;
use super::read_write::{self, Readers};
use crate::backend::kit::topic::{WakeUpTopic, WakeUps};
use crate::backend::{
    AcquireRequest, AskedKind, EventSink, Fault, FoundKind, FurtherTurns, Granted, HandedOver,
    Renewal, Renewed, Snapshot, Spare, clash,
};
use crate::sync::{Mutex, MutexGuard};
use crate::values::{FencingToken, Key, Kind, TokenRange, clock};

/// A lock store in this process. Clones share the same locks, so several managers can contend on one store.
///
/// ```
/// use lock_runtime::{LockManager, MemoryStore};
///
/// let store = MemoryStore::new();
/// let one = LockManager::builder().memory_store(&store).in_memory().unwrap();
/// let other = LockManager::builder().memory_store(&store).in_memory().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Default)]
pub(super) struct MemoryState {
    epoch: Epoch,
    pub(super) locks: HashMap<Box<str>, Entry>,
    /// The queue of each fair lock. No queue is empty.
    pub(super) queues: HashMap<Box<str>, fair::FairQueue>,
    /// The last token of each fenced lock.
    pub(super) counters: HashMap<Box<str>, FencingToken>,
    /// The records of the clients.
    pub(super) clients: HashMap<Box<str>, ClientEntry>,
    /// The time until which a waiting writer keeps new readers out, by key.
    pub(super) writers_waiting: HashMap<Box<str>, Instant>,
    /// The number of entries at which the expired ones are removed.
    pub(super) sweep_at: usize,
    /// The last token given. One counter serves all keys, so the tokens of each key increase as well.
    pub(super) last_token: Option<FencingToken>,
    pub(super) topics: Arc<WakeUps>,
    /// The topics that the current operation wakes, once the state is unlocked.
    raised: Vec<WakeUpTopic>,
    /// The managers' receivers of events, one for each connection.
    pub(super) sinks: Vec<EventSink>,
}

/// The time at which a store began, by tokio's clock and in µs of the wall clock.
struct Epoch(Instant, u64);

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch(clock::tick(), clock::wall_micros())
    }
}

/// The entry at a key.
pub(super) enum Entry {
    Exclusive(Exclusive),
    Permits(Permits),
    Readers(Readers),
    Ids(LastId),
}

impl Entry {
    /// Returns the time at which nothing of the entry is left.
    pub(super) fn expires(&self) -> Instant {
        match self {
            Entry::Exclusive(hold) => hold.expires,
            Entry::Permits(permits) => permits.expires(),
            Entry::Readers(readers) => read_write::last_end(readers).unwrap_or_else(clock::tick),
            Entry::Ids(source) => source.expires,
        }
    }

    pub(super) fn seen(&self) -> Option<Snapshot> {
        match self {
            Entry::Exclusive(hold) => Some(hold.seen()),
            Entry::Permits(permits) => Some(permits.seen()),
            Entry::Readers(readers) => read_write::seen(readers),
            Entry::Ids(_) => None,
        }
    }

    /// Whether somebody holds it.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Entry::Exclusive(hold) => hold.expires > clock::tick(),
            Entry::Permits(permits) => permits.is_held(),
            Entry::Readers(readers) => !read_write::live(readers).is_empty(),
            Entry::Ids(_) => false,
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("locks", &self.lock().locks.len())
            .finish()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Returns the process-wide store of that name, and creates it on first use. `memory://name` connects to it.
    pub fn named(name: &str) -> MemoryStore {
        static STORES: Mutex<Option<HashMap<String, MemoryStore>>> = Mutex::new(None);
        let mut stores = STORES.lock();
        stores
            .get_or_insert_default()
            .entry(name.to_owned())
            .or_default()
            .clone()
    }

    /// Returns the number of locks that are held now, plus the number of semaphores with a leased permit.
    pub fn held(&self) -> usize {
        self.lock()
            .locks
            .values()
            .filter(|entry| entry.is_held())
            .count()
    }

    /// Forgets every lock and counter, as `FLUSHALL` would. Holders learn of it at their next renewal. Tokens go on
    /// rising; those of fenced locks start again at 1.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.locks.clear();
        state.queues.clear();
        state.counters.clear();
        state.writers_waiting.clear();
        state.clients.clear();
    }

    /// Forgets what it keeps of one key, as `DEL` of all of it would.
    #[cfg(simulation)]
    pub(crate) fn forget(&self, key: &str) {
        let mut state = self.lock();
        state.locks.remove(key);
        state.queues.remove(key);
        state.counters.remove(key);
        state.writers_waiting.remove(key);
    }

    /// What is left in it: keys that are held, queues, and topics that somebody listens to.
    #[cfg(simulation)]
    pub(crate) fn left(&self) -> [usize; 3] {
        let held = self.held();
        let state = self.lock();
        [held, state.queues.len(), state.topics.count()]
    }

    /// Whether the two are clones of one store.
    pub(crate) fn is(&self, other: &MemoryStore) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    // Nothing below panics while the lock is held, so a poisoned state is still whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock()
    }

    /// Runs one operation. With the state unlocked, it then wakes the listeners that the operation names: a waker may poll its
    /// task at once, which comes back here.
    pub(super) fn run<T>(&self, op: impl FnOnce(&mut MemoryState) -> T) -> T {
        let mut state = self.lock();
        let outcome = op(&mut state);
        let raised = std::mem::take(&mut state.raised);
        drop(state);
        raised.iter().for_each(|topic| topic.send_replace(()));
        outcome
    }

    #[cfg(simulation)]
    pub(crate) fn micros(&self) -> u64 {
        self.lock().micros()
    }
}

impl MemoryState {
    /// Returns the time by the store's clock, in µs.
    pub(super) fn micros(&self) -> u64 {
        let Epoch(began, micros) = self.epoch;
        micros + u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX / 2)
    }

    /// Returns the entry at a key, unless it has expired.
    pub(super) fn live(&mut self, key: &Key) -> Option<&mut Entry> {
        if self
            .locks
            .get(key.raw())
            .is_some_and(|entry| entry.expires() <= clock::tick())
        {
            self.locks.remove(key.raw());
        }
        self.locks.get_mut(key.raw())
    }

    pub(super) fn put(&mut self, key: &Key, entry: Entry) {
        let now = clock::tick();
        if self.locks.len() >= self.sweep_at {
            self.locks.retain(|_, entry| entry.expires() > now);
            self.writers_waiting.retain(|_, until| *until > now);
            self.sweep_at = (self.locks.len() * 2).max(64);
        }
        self.locks.insert(key.raw().into(), entry);
    }

    /// The token of an acquisition now, if one is wanted.
    fn token(&mut self, request: &AcquireRequest<'_>) -> Option<FencingToken> {
        if !request.fenced {
            return None;
        }
        let key = request.hold_ref.key;
        let token = if key.kind() == Kind::Fenced {
            // As in Redis, the first token is 1.
            let before_all = FencingToken::after(None, 0);
            let last = self.counters.entry(key.raw().into()).or_insert(before_all);
            *last = FencingToken::after(Some(*last), 0);
            *last
        } else {
            let token = FencingToken::after(self.last_token, self.micros());
            self.last_token = Some(token);
            token
        };
        Some(token)
    }

    /// Returns the grant of an acquisition that was carried out.
    pub(super) fn granted(&mut self, request: &AcquireRequest<'_>) -> Granted {
        Granted::leased(self.token(request), request.asked_at)
    }

    /// Returns the answer to a hand-over that was carried out.
    pub(super) fn handed_over(&mut self, to: &AcquireRequest<'_>, spare: u64) -> HandedOver {
        let granted = self.granted(to);
        let terms = FurtherTurns {
            spare: self.spare(to, granted.token, spare),
            // This manager has no listener at a key that it holds itself, so every listener belongs to another manager.
            others: self.others(to.hold_ref.key),
        };
        HandedOver::Done(granted, terms)
    }

    /// Sets aside further tokens that follow a token that was just given.
    fn spare(
        &mut self,
        request: &AcquireRequest<'_>,
        given: Option<FencingToken>,
        spare: u64,
    ) -> Spare {
        let Some(given) = given else {
            return Spare::Untokened;
        };
        let key = request.hold_ref.key;
        Spare::Tokens(if key.kind() == Kind::Fenced {
            let last = given.plus(spare);
            self.counters.insert(key.raw().into(), last);
            TokenRange::new(given, last, None)
        } else {
            let micros = self.micros();
            let time = FencingToken::after(None, micros);
            // Sets none aside while the tokens are already ahead of the clock. They would run ever further ahead.
            let last = if given > time {
                given
            } else {
                time.plus(spare)
            };
            self.last_token = Some(last);
            TokenRange::new(given, last, Some((micros, clock::now())))
        })
    }

    /// Returns the number of managers that listen at the key.
    pub(super) fn others(&self, key: &Key) -> Option<u64> {
        u64::try_from(self.topics.listeners(key.raw())).ok()
    }

    /// Wakes the listeners at the key.
    pub(super) fn wake(&mut self, key: &Key) {
        self.wake_topic(key.raw());
    }

    /// Wakes the listeners of that topic.
    pub(super) fn wake_topic(&mut self, name: &str) {
        self.raised.extend(self.topics.topic(name));
    }
}

/// Returns the rest of a lease that ends at `expires`.
pub(super) fn left(expires: Instant) -> Duration {
    expires.saturating_duration_since(clock::tick())
}

/// Longer than any process lives.
pub(super) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the fault of a key that something else uses.
pub(super) fn foreign(key: &Key, found: &Entry, asked: AskedKind) -> Fault {
    let found = match found {
        Entry::Exclusive(hold) if !hold.writes => FoundKind::Exclusive,
        Entry::Exclusive(_) | Entry::Readers(_) => FoundKind::ReadWrite,
        Entry::Permits(permits) if permits.leased() > 0 => FoundKind::Semaphore,
        Entry::Permits(_) => FoundKind::Counter,
        Entry::Ids(_) => FoundKind::Ids,
    };
    clash(key, found, asked)
}

/// Extends a lease, and never shortens it. `expires` is `None` if the holder has none.
pub(super) fn renewed(expires: Option<&mut Instant>, renewal: &Renewal) -> Renewed {
    let Some(expires) = expires else {
        return Renewed::NotHeld;
    };
    if let Some(ttl) = renewal.ttl {
        *expires = (*expires).max(clock::tick() + ttl.duration());
    }
    Renewed::Held
}
