//! The memory store: the embedded default and the reference model of what every backend must do.
//!
//! Its clock is tokio's, so leases follow a paused clock. As in Redis, expiry tells nobody: waiters learn of it
//! by their own timers.

mod counters;
mod exclusive;
mod fair;
mod permits;
mod read_write;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use self::exclusive::Exclusive;
use self::permits::Permits;
use self::read_write::ReadWrite;
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Counters, Event, EventSink, Fault, HandOff,
    HandedOver, HoldRef, Listen, Released, Renewal, Renewed, Reply, Shared, Snapshot, Victim,
};
use crate::backend::kit::topic::{Ear, Topic};
use crate::values::clock::{self, Moment};
use crate::values::fence::FencingToken;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::{Kind, LockMode};
use crate::values::ttl::Ttl;

/// A lock store in this process. Clones share the same locks, so several managers can contend on one store.
///
/// ```
/// use lock_runtime::{LockManager, MemoryStore};
///
/// let store = MemoryStore::new();
/// let one = LockManager::builder().memory_store(&store).in_memory().unwrap();
/// let other = LockManager::builder().memory_store(&store).in_memory().unwrap();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Table>,
}

struct Table {
    state: Mutex<State>,
    epoch: Instant,
    epoch_micros: u64,
}

#[derive(Default)]
struct State {
    locks: HashMap<Box<str>, Entry>,
    /// Who waits for each fair lock. None is empty.
    queues: HashMap<Box<str>, fair::Queue>,
    /// The last token of each fenced lock.
    counters: HashMap<Box<str>, FencingToken>,
    /// Until when a waiting writer keeps further readers out.
    writers_waiting: HashMap<Box<str>, Instant>,
    /// When the map has this many entries, the expired ones are swept out.
    sweep_at: usize,
    /// The last token given. One counter for all keys: it increases per key all the more.
    last_token: Option<FencingToken>,
    topics: HashMap<Box<str>, Weak<Topic>>,
    attached: Vec<(u64, EventSink)>,
    next_attachment: u64,
}

/// What stands at a key.
enum Entry {
    Exclusive(Exclusive),
    Permits(Permits),
    ReadWrite(ReadWrite),
}

impl Entry {
    /// When nothing of it is left.
    fn expires(&self) -> Instant {
        match self {
            Entry::Exclusive(hold) => hold.expires,
            // As long as anything: a counter has no lease, only its permits do.
            Entry::Permits(_) => clock::tick() + FOR_EVER,
            Entry::ReadWrite(lock) => lock.expires().unwrap_or_else(clock::tick),
        }
    }

    fn seen(&self) -> Option<Snapshot> {
        match self {
            Entry::Exclusive(hold) => Some(hold.seen()),
            Entry::Permits(permits) => Some(permits.seen()),
            Entry::ReadWrite(lock) => lock.seen(),
        }
    }

    /// Whether somebody holds it.
    fn is_held(&self) -> bool {
        match self {
            Entry::Exclusive(hold) => hold.expires > clock::tick(),
            Entry::Permits(permits) => permits.is_held(),
            Entry::ReadWrite(lock) => !lock.holders().is_empty(),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
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
        let shared = Table {
            state: Mutex::default(),
            epoch: clock::tick(),
            epoch_micros: clock::wall_micros(),
        };
        MemoryStore {
            shared: Arc::new(shared),
        }
    }

    /// The process-wide store of that name, made on first use: what `memory://name` connects to.
    pub fn named(name: &str) -> MemoryStore {
        static STORES: Mutex<Option<HashMap<String, MemoryStore>>> = Mutex::new(None);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores
            .get_or_insert_default()
            .entry(name.to_owned())
            .or_default()
            .clone()
    }

    /// How many locks are held now, and semaphores with a leased permit.
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
    }

    /// Whether the two are clones of one store.
    pub(crate) fn is(&self, other: &MemoryStore) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    // Nothing below panics while the lock is held, so a poisoned state is still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn micros(&self) -> u64 {
        let since = self.shared.epoch.elapsed().as_micros();
        self.shared.epoch_micros + u64::try_from(since).unwrap_or(u64::MAX / 2)
    }
}

impl State {
    /// What stands at a key and has not expired.
    fn live(&mut self, key: &Key) -> Option<&mut Entry> {
        if self
            .locks
            .get(key.raw())
            .is_some_and(|entry| entry.expires() <= clock::tick())
        {
            self.locks.remove(key.raw());
        }
        self.locks.get_mut(key.raw())
    }

    fn put(&mut self, key: &Key, entry: Entry) {
        let now = clock::tick();
        if self.locks.len() >= self.sweep_at {
            self.locks.retain(|_, entry| entry.expires() > now);
            self.writers_waiting.retain(|_, until| *until > now);
            // Two listeners that leave at once may each have thought that the other stays.
            self.topics.retain(|_, topic| topic.strong_count() > 0);
            self.sweep_at = (self.locks.len() * 2).max(64);
        }
        self.locks.insert(key.raw().into(), entry);
    }

    /// The token of an acquisition now, if one is wanted.
    fn token(&mut self, request: &AcquireRequest<'_>, micros: u64) -> Option<FencingToken> {
        if !request.fenced {
            return None;
        }
        let key = request.hold_ref.key;
        let token = if key.kind() == Kind::Fenced {
            // As Redis counts: the first one is 1.
            let before_all = FencingToken::after(None, 0);
            let last = self.counters.entry(key.raw().into()).or_insert(before_all);
            *last = FencingToken::after(Some(*last), 0);
            *last
        } else {
            let token = FencingToken::after(self.last_token, micros);
            self.last_token = Some(token);
            token
        };
        Some(token)
    }

    fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.get(name).and_then(Weak::upgrade)
    }

    /// How many managers listen at the key.
    fn strangers(&self, key: &Key) -> Option<u64> {
        let strangers = self
            .topic(key.raw())
            .map_or(0, |topic| Arc::strong_count(&topic) - 1);
        u64::try_from(strangers).ok()
    }

    /// Wakes the listeners at the key.
    fn wake(&self, key: &Key) {
        self.wake_at(key.raw());
    }

    /// Wakes the listeners there: to a key, or for one waiter.
    fn wake_at(&self, name: &str) {
        if let Some(topic) = self.topic(name) {
            topic.raise();
        }
    }

    fn listen(&mut self, name: &str) -> Ear {
        let topic = self.topic(name).unwrap_or_else(|| {
            let topic = Arc::new(Topic::default());
            self.topics.insert(name.into(), Arc::downgrade(&topic));
            topic
        });
        Ear::new(topic)
    }
}

/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The fault of a key that is something else.
fn foreign(key: &Key, why: &str) -> Fault {
    Fault::Foreign {
        key: key.raw().to_owned(),
        why: why.to_owned(),
    }
}

/// When an operation is carried out, and when it was asked for.
#[derive(Clone, Copy)]
struct At {
    /// By the store's clock.
    micros: u64,
    sent_at: Moment,
}

/// One manager's connection to a store.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    store: MemoryStore,
    attachment: u64,
}

impl MemoryBackend {
    pub(crate) fn new(store: MemoryStore, events: EventSink) -> MemoryBackend {
        let attachment = {
            let mut state = store.lock();
            state.next_attachment += 1;
            let attachment = state.next_attachment;
            state.attached.push((attachment, events));
            attachment
        };
        MemoryBackend { store, attachment }
    }

    fn listen_at(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        Box::new(Listener::new(&self.store, key.raw()))
    }

    /// Runs one operation on the state, as a store runs one script. It is ready at once, so it takes part in
    /// tokio's cooperative scheduling by hand: a loop over it must not keep a worker thread to itself.
    fn op<'a, T: Send + 'a>(
        &'a self,
        op: impl FnOnce(&mut State) -> Result<T, Fault> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move {
            tokio::task::coop::consume_budget().await;
            op(&mut self.store.lock())
        })
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backend for MemoryBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        self.op(move |state| {
            let at = At {
                micros: self.store.micros(),
                sent_at: request.asked_at,
            };
            match request.hold_ref.key.kind() {
                Kind::Mutex | Kind::Fenced => exclusive::acquire(state, &request, at),
                Kind::Permits => permits::acquire(state, &request, at),
                Kind::Fair => fair::acquire(state, &request, at),
                Kind::Read | Kind::Write => read_write::acquire(state, &request, at),
            }
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        let sent_at = clock::now();
        self.op(move |state| {
            let at = At {
                micros: self.store.micros(),
                sent_at,
            };
            exclusive::acquire_all(state, requests, at)
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, _: Duration) -> Reply<'a, Released> {
        self.op(move |state| {
            Ok(match hold_ref.key.kind() {
                Kind::Mutex | Kind::Fenced => exclusive::release(state, hold_ref),
                Kind::Permits => permits::release(state, hold_ref),
                Kind::Fair => fair::release(state, hold_ref),
                Kind::Read | Kind::Write => read_write::release(state, hold_ref),
            })
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _: Duration,
        _: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        self.op(move |state| {
            let renew = |renewal: &Renewal| match renewal.key.kind() {
                Kind::Mutex | Kind::Fenced | Kind::Fair => exclusive::renew(state, renewal),
                Kind::Permits => permits::renew(state, renewal),
                Kind::Read | Kind::Write => read_write::renew(state, renewal),
            };
            Ok(batch.iter().map(renew).collect())
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let (victims, sinks) = {
                let mut state = self.store.lock();
                let Some(entry) = state.live(key) else {
                    return Ok(false);
                };
                let victims = match entry {
                    Entry::Exclusive(hold) => {
                        let victims = vec![hold.holder];
                        state.locks.remove(key.raw());
                        victims
                    }
                    Entry::Permits(permits) => {
                        permits.reclaim();
                        permits.give_back_all()
                    }
                    Entry::ReadWrite(lock) => {
                        let victims = lock.holders();
                        state.locks.remove(key.raw());
                        victims
                    }
                };
                if victims.is_empty() {
                    return Ok(false);
                }
                state.wake(key);
                fair::wake_first(&mut state, key);
                (victims, state.attached.clone())
            };
            for (_, sink) in sinks {
                for victim in &victims {
                    sink(Event::ForceReleased(Victim::Id(*victim)));
                }
            }
            Ok(true)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, Option<Snapshot>> {
        self.op(move |state| {
            let queued = fair::queued(state, key);
            Ok(state.live(key).and_then(|entry| {
                if let Entry::Permits(permits) = entry {
                    permits.reclaim();
                }
                let seen = entry.seen()?;
                let mode = if queued > 0 {
                    LockMode::Fair
                } else {
                    seen.mode
                };
                Some(Snapshot {
                    mode,
                    queued,
                    ..seen
                })
            }))
        })
    }

    fn name(&self) -> &'static str {
        "the memory store"
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.listen_at(key)
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        Box::new(Listener::new(&self.store, &fair::own_topic(key, holder)))
    }

    fn close(&self) {
        self.store
            .lock()
            .attached
            .retain(|(attachment, _)| *attachment != self.attachment);
    }
}

impl HandOff for MemoryBackend {
    fn hand_over<'a>(&'a self, from: HolderId, to: AcquireRequest<'a>) -> Reply<'a, HandedOver> {
        self.op(move |state| {
            let at = At {
                micros: self.store.micros(),
                sent_at: to.asked_at,
            };
            Ok(match to.hold_ref.key.kind() {
                Kind::Mutex | Kind::Fenced => exclusive::hand_over(state, from, &to, at),
                // Nobody owns the turn at a semaphore, so nobody hands it over.
                Kind::Permits => HandedOver::NotHeld,
                // Its heir is the first in the store's queue.
                Kind::Fair => HandedOver::NotHeld,
                Kind::Read | Kind::Write => read_write::hand_over(state, from, &to, at),
            })
        })
    }
}

impl Shared for MemoryBackend {
    fn downgrade<'a>(&'a self, hold_ref: HoldRef<'a>, _: Ttl, _: Duration) -> Reply<'a, Released> {
        self.op(move |state| Ok(read_write::downgrade(state, hold_ref)))
    }
}

struct Listener {
    ear: Ear,
    name: Box<str>,
    store: MemoryStore,
}

impl Listener {
    fn new(store: &MemoryStore, name: &str) -> Listener {
        let ear = store.lock().listen(name);
        Listener {
            ear,
            name: name.into(),
            store: store.clone(),
        }
    }
}

impl Listen for Listener {
    fn ready(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    fn heard(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.ear.heard()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        // New listeners take the store's lock as well, so a count of one is this listener alone.
        if Arc::strong_count(self.ear.topic()) == 1 {
            state.topics.remove(&self.name);
        }
    }
}
