//! The memory store: the embedded default, and the reference model for every backend.
//!
//! Its clock is tokio's, so leases follow a paused clock. As in Redis, no message is sent when a lease expires: waiters
//! notice it by their own timers.

mod counters;
mod directory;
mod exclusive;
mod fair;
mod permits;
mod read_write;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use self::store::MemoryStore;
use self::store::{Entry, MemoryState, foreign};
use super::{
    AcquireRequest, Acquired, AcquiredAll, AskedKind, Backend, Counters, Directory, Event,
    EventSink, Fault, HandedOver, HoldRef, Holders, Listen, Released, Renewal, Renewed, Reply,
    Snapshot, StoreTraits, Within,
};
use crate::values::{HolderId, Key, Kind, LockMode, StoreKind, Ttl};

/// One manager's connection to a store.
pub(crate) struct MemoryBackend {
    store: MemoryStore,
    events: EventSink,
    /// Set by a test. Nothing else can make a memory store unreachable.
    is_away: AtomicBool,
}

impl MemoryBackend {
    pub(crate) fn new(store: MemoryStore, events: EventSink) -> MemoryBackend {
        store.lock().sinks.push(events.clone());
        MemoryBackend {
            store,
            events,
            is_away: AtomicBool::new(false),
        }
    }

    /// Another manager's connection to the same store. It receives no events.
    #[cfg(feature = "test-util")]
    pub(crate) fn beside(&self) -> MemoryBackend {
        MemoryBackend::new(self.store.clone(), Arc::new(|_| ()))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn set_away(&self, away: bool) {
        self.is_away.store(away, Ordering::SeqCst);
    }

    pub(crate) fn check_here(&self) -> Result<(), Fault> {
        if self.is_away.load(Ordering::SeqCst) {
            Err(Fault::not_done("the store is away, as the test says"))
        } else {
            Ok(())
        }
    }

    pub(super) fn listen_to_topic(&self, name: &str) -> Box<dyn Listen> {
        let topics = self.store.lock().topics.clone();
        Box::new(topics.listen(name))
    }

    /// Notifies the holder that keeps the lock that another client wants it.
    fn ask_keeper(&self, key: &Key) {
        let (keeper, sinks) = {
            let mut state = self.store.lock();
            let Some(hold) = exclusive::hold(&mut state, key) else {
                return;
            };
            (hold.holder, state.sinks.clone())
        };
        // The state is unlocked here, because the keeper gives the lock back.
        for sink in sinks {
            sink(Event::Wanted(Holders::Id(keeper)));
        }
    }

    /// Runs one operation on the state, as a store runs one script. It is ready at once, so it takes part in
    /// tokio's cooperative scheduling by hand: a loop over it must not keep a worker thread to itself.
    fn op<'a, T: Send + 'a>(
        &'a self,
        op: impl FnOnce(&mut MemoryState) -> Result<T, Fault> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(self.run(op))
    }

    async fn run<T>(
        &self,
        op: impl FnOnce(&mut MemoryState) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        tokio::task::coop::consume_budget().await;
        self.check_here()?;
        self.store.run(op)
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backend for MemoryBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        let acquire = move |state: &mut MemoryState| match request.hold_ref.key.kind() {
            Kind::Mutex | Kind::Fenced => exclusive::acquire(state, &request),
            Kind::Semaphore => permits::acquire(state, &request),
            Kind::Fair => fair::acquire(state, &request),
            Kind::Read | Kind::Write => read_write::acquire(state, &request),
        };
        Box::pin(async move {
            let acquired = self.run(acquire).await?;
            if let Acquired::Busy { kept: true, .. } = acquired {
                self.ask_keeper(request.hold_ref.key);
            }
            Ok(acquired)
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        self.op(move |state| exclusive::acquire_all(state, requests))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, _: Duration) -> Reply<'a, Released> {
        self.op(move |state| {
            Ok(match hold_ref.key.kind() {
                Kind::Mutex | Kind::Fenced => exclusive::release(state, hold_ref),
                Kind::Semaphore => permits::release(state, hold_ref),
                Kind::Fair => fair::release(state, hold_ref),
                Kind::Read | Kind::Write => read_write::release(state, hold_ref),
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Within) -> Reply<'a, Vec<Renewed>> {
        self.op(move |state| {
            let renew = |renewal: &Renewal| match renewal.key.kind() {
                Kind::Mutex | Kind::Fenced | Kind::Fair => exclusive::renew(state, renewal),
                Kind::Semaphore => permits::renew(state, renewal),
                Kind::Read | Kind::Write => read_write::renew(state, renewal),
            };
            Ok(batch.iter().map(renew).collect())
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            self.check_here()?;
            let (victims, sinks) = self.store.run(|state| {
                let Some(entry) = state.live(key) else {
                    return Ok((Vec::new(), Vec::new()));
                };
                let is_lock = !matches!(entry, Entry::Permits(_));
                let victims = match entry {
                    Entry::Exclusive(hold) => vec![hold.holder],
                    Entry::Permits(permits) => {
                        permits.reclaim();
                        permits.give_back_all()
                    }
                    Entry::Readers(readers) => read_write::live(readers),
                    Entry::Ids(_) => return Err(foreign(key, entry, AskedKind::Any)),
                };
                if is_lock {
                    state.locks.remove(key.raw());
                }
                if !victims.is_empty() {
                    state.wake(key);
                    fair::wake_first(state, key);
                }
                Ok((victims, state.sinks.clone()))
            })?;
            for sink in sinks {
                for victim in &victims {
                    sink(Event::ForceReleased(Holders::Id(*victim)));
                }
            }
            Ok(!victims.is_empty())
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, Option<Snapshot>> {
        self.op(move |state| {
            let (queued, first_waiters) = fair::waiters(state, key);
            let Some(entry) = state.live(key) else {
                return Ok(None);
            };
            match entry {
                Entry::Permits(permits) => drop(permits.reclaim()),
                Entry::Ids(_) => return Err(foreign(key, entry, AskedKind::Any)),
                Entry::Exclusive(_) | Entry::Readers(_) => {}
            }
            Ok(entry.seen().map(|seen| {
                let mode = if queued > 0 {
                    LockMode::Fair
                } else {
                    seen.mode
                };
                Snapshot {
                    mode,
                    queued,
                    first_waiters,
                    ..seen
                }
            }))
        })
    }

    fn store(&self) -> StoreKind {
        StoreKind::Memory
    }

    fn traits(&self) -> StoreTraits {
        StoreTraits {
            kinds: &Kind::ALL,
            tells_keepers: true,
            hands_over: true,
            lives_in_a_runtime: false,
            ..StoreTraits::default()
        }
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        self.op(move |state| Ok(exclusive::hand_over(state, from, &to, spare)))
    }

    fn downgrade<'a>(&'a self, hold_ref: HoldRef<'a>, _: Ttl, _: Duration) -> Reply<'a, Released> {
        self.op(move |state| Ok(read_write::downgrade(state, hold_ref)))
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn wanted_by(&self, key: &Key) -> u64 {
        self.store.lock().others(key).unwrap_or(0)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.listen_to_topic(key.raw())
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.listen_to_topic(&fair::own_topic(key, holder))
    }

    fn close(&self) {
        let is_other = |sink: &EventSink| !Arc::ptr_eq(sink, &self.events);
        self.store.lock().sinks.retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::kit::topic::tests::{wake_by, without_a_deadlock};
    use crate::values::LockName;

    #[test]
    fn a_waker_may_ask_the_store_at_once() {
        without_a_deadlock(|| {
            let store = MemoryStore::new();
            let backend = MemoryBackend::new(store.clone(), Arc::new(|_| ()));
            let key = Key::new("", &LockName::from("k"), Kind::Mutex).unwrap();
            let (looked, look) = std::sync::mpsc::channel();
            let asked = store.clone();
            wake_by(
                &mut *backend.listen_to_topic(key.raw()),
                move || looked.send(asked.held()).unwrap(),
                || store.run(|state| state.wake(&key)),
            );
            assert_eq!(look.try_recv(), Ok(0));
        });
    }
}
