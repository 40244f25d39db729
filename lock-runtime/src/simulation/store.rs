//! The side of the store: a memory store whose clock the simulation drives, and what is on its way to it.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::backend::SimulatedBackend;
use super::line::{Fate, Message, Passing, Road};
use super::process::{Inbox, Process, paused_runtime};
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{Event, EventSink, Listen};
use crate::values::clock::{self, Simulated};

/// A store of the simulation.
pub struct Store {
    number: usize,
    runtime: Runtime,
    clock: Simulated,
    pub(super) memory: MemoryStore,
    road: StoreRoad,
    clients: Vec<Client>,
    /// The time of the simulation up to which it has run, in ns. Event sinks read it.
    now: Arc<AtomicU64>,
    /// How fast its clock goes.
    rate: f64,
    /// For how long its clock still stands.
    stands: Duration,
}

/// What arrives at a store, carried out by its clock.
pub(super) type StoreRoad = Arc<Road<dyn FnOnce(&mut Store) + Send>>;

/// Subscribes at the memory store.
pub(super) type ListensAt = Arc<dyn Fn(&MemoryBackend) -> Box<dyn Listen> + Send + Sync>;

/// A manager's connection.
struct Client {
    backend: MemoryBackend,
    inbox: Inbox,
    network: Passing,
    process: usize,
    ears: Vec<Ear>,
    /// Subscriptions that it has ended.
    left: BTreeSet<u64>,
    is_gone: bool,
}

/// A subscription.
struct Ear {
    topic: u64,
    listener: Box<dyn Listen>,
    raise: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.number).finish()
    }
}

/// Polls a future of the memory store, which answers at once.
pub(super) fn answer_of<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store does not wait"),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Store {
    /// An empty store.
    pub fn new(number: usize) -> Store {
        let runtime = paused_runtime();
        let clock = Simulated {
            began: runtime.block_on(async { clock::tick() }).into_std(),
            behind: Duration::ZERO,
            suspended: Duration::ZERO,
        };
        clock::simulate(clock);
        let memory = {
            let _here = runtime.enter();
            MemoryStore::new()
        };
        Store {
            number,
            runtime,
            clock,
            memory,
            road: StoreRoad::default(),
            clients: Vec::new(),
            now: Arc::default(),
            rate: 1.0,
            stands: Duration::ZERO,
        }
    }

    pub(super) fn connect(
        &mut self,
        process: &Process,
        network: &Passing,
        events: EventSink,
    ) -> SimulatedBackend {
        let (inbox, passing) = (process.inbox().clone(), network.clone());
        let (at, number, store) = (self.now.clone(), process.number(), self.number);
        let sink = move |event: Event| {
            let at = Duration::from_nanos(at.load(Ordering::Relaxed));
            let fate = passing.fate(at, number, store, Message::Push);
            for pause in deliveries(fate) {
                let (events, event) = (events.clone(), event.clone());
                inbox.send(at + pause, Box::new(move || events(event)));
            }
        };
        self.clients.push(Client {
            backend: MemoryBackend::new(self.memory.clone(), Arc::new(sink)),
            inbox: process.inbox().clone(),
            network: network.clone(),
            process: number,
            ears: Vec::new(),
            left: BTreeSet::new(),
            is_gone: false,
        });
        let client = self.clients.len() - 1;
        SimulatedBackend::new(self.road.clone(), process, network.clone(), store, client)
    }

    /// Lets it run until this time of the simulation. What arrives before that is carried out on time.
    pub fn run_until(&mut self, until: Duration) {
        clock::simulate(self.clock);
        while let Some((at, does)) = self.road.next(until) {
            self.go_to(at);
            does(self);
            self.tell();
        }
        self.go_to(until);
    }

    fn go_to(&mut self, time: Duration) {
        let now = self.now();
        let passed = time.saturating_sub(now);
        let stood = passed.min(self.stands);
        self.stands -= stood;
        self.advance((passed - stood).mul_f64(self.rate));
        self.now.store(nanos(now + passed), Ordering::Relaxed);
    }

    fn advance(&self, time: Duration) {
        self.runtime.block_on(tokio::time::advance(time));
    }

    /// Sends what listeners have heard.
    fn tell(&mut self) {
        let (at, number) = (self.now(), self.number);
        for client in &mut self.clients {
            for ear in &mut client.ears {
                let heard = {
                    let mut heard = ear.listener.heard();
                    heard.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                };
                if heard.is_pending() {
                    continue;
                }
                let fate = client
                    .network
                    .fate(at, client.process, number, Message::Push);
                for pause in deliveries(fate) {
                    let raise = ear.raise.clone();
                    client.inbox.send(at + pause, Box::new(move || raise()));
                }
            }
        }
    }

    /// The time of the simulation up to which it has run.
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Runs one operation for a client, by the store's clock, whose time in µs it is told.
    pub(super) fn serve<T>(
        &mut self,
        client: usize,
        operation: impl FnOnce(&MemoryBackend, u64) -> T,
    ) -> T {
        let _here = self.runtime.enter();
        operation(&self.clients[client].backend, self.memory.micros())
    }

    pub(super) fn subscribe(
        &mut self,
        client: usize,
        topic: u64,
        listener: &dyn Fn(&MemoryBackend) -> Box<dyn Listen>,
        raise: &Arc<dyn Fn() + Send + Sync>,
    ) {
        let client = &mut self.clients[client];
        let is_known = client.ears.iter().any(|ear| ear.topic == topic);
        if !is_known && !client.is_gone && !client.left.contains(&topic) {
            client.ears.push(Ear {
                topic,
                listener: listener(&client.backend),
                raise: raise.clone(),
            });
        }
    }

    /// Ends a subscription, also one whose request is still on its way.
    pub(super) fn unsubscribe(&mut self, client: usize, topic: u64) {
        let client = &mut self.clients[client];
        client.ears.retain(|ear| ear.topic != topic);
        client.left.insert(topic);
    }

    /// Ends the connections of a process: the store has noticed that it is gone.
    pub fn hang_up(&mut self, process: usize) {
        let _here = self.runtime.enter();
        for client in self.clients.iter_mut().filter(|it| it.process == process) {
            client.is_gone = true;
            client.ears.clear();
            crate::backend::Backend::close(&client.backend);
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.memory.clear();
    }

    /// Forgets one key.
    pub fn forget_key(&mut self, key: &str) {
        self.memory.forget(key);
    }

    /// Sets how fast its clock goes.
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Its clock steps forward.
    pub fn step(&mut self, time: Duration) {
        clock::simulate(self.clock);
        self.advance(time);
    }

    /// Its clock stands still for so long, as one that was set back does until it has caught up.
    pub fn stand_still(&mut self, time: Duration) {
        self.stands += time;
    }

    /// Returns what it still keeps: the number of keys that are held, of queues, and of topics with a listener.
    pub fn left(&mut self) -> [usize; 3] {
        clock::simulate(self.clock);
        let _here = self.runtime.enter();
        self.memory.left()
    }
}

/// Returns when each copy of a push arrives.
fn deliveries(fate: Fate) -> impl Iterator<Item = Duration> {
    let first = fate.there.filter(|_| !fate.refused);
    let second = first.zip(fate.again).map(|(first, again)| first + again);
    first.into_iter().chain(second)
}
