//! The store as a process sees it. It keeps what the trait demands of a store over a network: acquires carry a date after
//! which the store refuses them, and an acquire of unknown outcome is undone.

use std::collections::HashMap;
use std::future::pending;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::line::{Message, Passing};
use super::process::{Inbox, Process};
use super::store::{ListensAt, Store, StoreRoad, answer_of};
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::kit::topic::{TopicListener, WakeUps};
use crate::backend::kit::undo::Undo;
use crate::backend::memory::MemoryBackend;
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, CounterRef, Counters, Fault,
    FurtherTurns, HandedOver, HoldRef, Listen, Released, Renewal, Renewed, Reply, Snapshot, Spare,
    StoreTraits, Within,
};
use crate::sync::Mutex;
use crate::values::clock::{self, Moment, simulated_now};
use crate::values::{Backoff, Count, HolderId, IdRange, IdSecret, Key, Kind, StoreKind, Ttl};

/// The longest time for which a call that has no timeout of its own is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a compensation goes on after the lease that it may have to end.
const SLACK: Duration = Duration::from_secs(1);

pub(super) struct SimulatedBackend {
    line: Arc<Line>,
    wake_ups: Arc<WakeUps>,
    subscriptions: Mutex<HashMap<String, Weak<SharedSubscription>>>,
}

/// A connection.
struct Line {
    road: StoreRoad,
    inbox: Inbox,
    network: Passing,
    process: usize,
    store: usize,
    client: usize,
    handle: Handle,
    clock: ServerClock,
    /// Of the last answer, in µs.
    round_trip: AtomicU64,
    /// The number of subscriptions so far.
    subscribed: AtomicU64,
    closed: AtomicBool,
    /// Compensations that are under way.
    pending: Arc<Count>,
}

impl SimulatedBackend {
    pub(super) fn new(
        road: StoreRoad,
        process: &Process,
        network: Passing,
        store: usize,
        client: usize,
    ) -> SimulatedBackend {
        SimulatedBackend {
            line: Arc::new(Line {
                road,
                inbox: process.inbox().clone(),
                network,
                process: process.number(),
                store,
                client,
                handle: process.handle(),
                clock: ServerClock::default(),
                round_trip: AtomicU64::new(0),
                subscribed: AtomicU64::new(0),
                closed: AtomicBool::new(false),
                pending: Arc::default(),
            }),
            wake_ups: Arc::default(),
            subscriptions: Mutex::default(),
        }
    }

    fn subscription(
        &self,
        name: String,
        listener: impl Fn(&MemoryBackend) -> Box<dyn Listen> + Send + Sync + 'static,
    ) -> Box<dyn Listen> {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.retain(|_, heard| heard.strong_count() > 0);
        let wake_ups = self.wake_ups.listen(&name);
        let heard = subscriptions.get(&name).and_then(Weak::upgrade);
        let heard = heard.unwrap_or_else(|| {
            let heard = Arc::new(SharedSubscription {
                line: self.line.clone(),
                number: self.line.subscribed.fetch_add(1, Ordering::Relaxed),
                is_confirmed: AtomicBool::new(false),
                confirmed: Notify::new(),
            });
            subscriptions.insert(name.clone(), Arc::downgrade(&heard));
            let topics = self.wake_ups.clone();
            let raise = Arc::new(move || topics.raise(&name));
            let subscribing = subscribe(Arc::downgrade(&heard), Arc::new(listener), raise);
            self.line.handle.spawn(subscribing);
            heard
        });
        Box::new(Listener { heard, wake_ups })
    }
}

impl Line {
    /// Sends a request that the store's lock table answers, by the store's time in µs.
    async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        repeatable: bool,
        timeout: Duration,
        does: impl Fn(&MemoryBackend, u64) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<T, Fault> {
        let client = self.client;
        let served = move |store: &mut Store| store.serve(client, &does);
        self.ask(operation, repeatable, timeout, served).await
    }

    async fn subscribe(
        &self,
        topic: u64,
        listener: ListensAt,
        raise: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(), Fault> {
        let client = self.client;
        let subscribe = move |store: &mut Store| {
            store.subscribe(client, topic, &*listener, &raise);
            Ok(())
        };
        self.ask("subscribe", true, PATIENCE, subscribe).await
    }

    /// Sends a request, and waits for its answer for as long as `timeout`.
    async fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        repeatable: bool,
        timeout: Duration,
        does: impl Fn(&mut Store) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<T, Fault> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Fault::closed());
        }
        let message = Message::Request {
            operation,
            repeatable,
        };
        let sent = simulated_now();
        let fate = self.network.fate(sent, self.process, self.store, message);
        if fate.refused {
            return Err(Fault::not_done("the simulated connection is down"));
        }
        let (tell, told) = oneshot::channel();
        if let Some(there) = fate.there {
            let mut copies = vec![there];
            copies.extend(fate.again.map(|again| there + again));
            let (does, mut tell) = (Arc::new(does), Some(tell));
            let last = copies.len() - 1;
            for (number, there) in copies.into_iter().enumerate() {
                // Only the last copy is answered: the answer to the first one was lost, so it was sent again.
                let tell = if number == last { tell.take() } else { None };
                let (does, inbox) = (does.clone(), self.inbox.clone());
                let arrives = move |store: &mut Store| {
                    let answer = does(store);
                    if let (Some(tell), Some(back)) = (tell, fate.back) {
                        let deliver = move || drop(tell.send(answer));
                        inbox.send(store.now() + back, Box::new(deliver));
                    }
                };
                self.road.send(sent + there, Box::new(arrives));
            }
        }
        let answer = async {
            match told.await {
                Ok(answer) => answer,
                // It is lost, which nobody tells.
                Err(_) => pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer => {
                let took = simulated_now().saturating_sub(sent);
                let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.round_trip.store(micros, Ordering::Relaxed);
                answer
            }
            () = clock::sleep(timeout) => Err(Fault::unknown("no answer from the simulated store")),
        }
    }

    /// Sends requests that the store carries out together, and before a date alone. Those that come too late are sent again
    /// once: the store's clock was not known, or has stepped.
    async fn dated<T: Send + 'static>(
        self: &Arc<Line>,
        operation: &'static str,
        deadline: Moment,
        requests: &[OwnedRequest],
        does: impl Fn(&MemoryBackend) -> Result<T, Fault> + Clone + Send + Sync + 'static,
    ) -> (Moment, Result<T, Fault>) {
        // A fair waiter without an answer asks again as the same holder: only a drop ends that.
        let asks_again = requests.iter().all(|it| it.key.kind() == Kind::Fair);
        let mut late = false;
        loop {
            let sent_at = clock::now();
            let not_after = self.clock.not_after(sent_at, deadline);
            let undo = Undo::armed(|| {
                for request in requests {
                    self.undo(request.clone(), not_after, deadline);
                }
            });
            let does = does.clone();
            let dated = move |store: &MemoryBackend, micros: u64| {
                let answer = (micros <= not_after).then(|| does(store));
                Ok((micros, answer.transpose()?))
            };
            let answer = self.call(operation, true, deadline - sent_at, dated).await;
            if asks_again || !matches!(answer, Err(Fault::Unknown(_) | Fault::Closed(_))) {
                undo.disarm();
            }
            match answer {
                Ok((micros, answer)) => {
                    self.clock.saw(micros, sent_at);
                    match answer {
                        Some(answer) => return (sent_at, Ok(answer)),
                        None if late => return (sent_at, Err(Fault::too_late())),
                        None => late = true,
                    }
                }
                Err(fault) => return (sent_at, Err(fault)),
            }
        }
    }

    /// Releases what an acquire may have taken, again and again until it cannot happen any more.
    fn undo(self: &Arc<Line>, what: OwnedRequest, not_after: u64, deadline: Moment) {
        let (line, counted) = (self.clone(), self.pending.enter());
        self.handle.spawn(async move {
            let over = deadline + what.ttl.duration() + SLACK;
            let mut pauses = Backoff::new(Duration::from_millis(2), Duration::from_millis(250));
            while !over.has_passed() {
                let what = what.clone();
                let release = move |store: &MemoryBackend, micros: u64| {
                    let released = store.release(what.request().hold_ref, Duration::ZERO);
                    Ok((micros, answer_of(released)?))
                };
                // A request may overtake another one, so what is found released may be taken once more.
                match line.call("undo", false, PATIENCE, release).await {
                    Ok((micros, _)) if micros > not_after => break,
                    Err(Fault::Closed(_)) => break,
                    Ok(_) | Err(_) => clock::sleep(pauses.pause()).await,
                }
            }
            drop(counted);
        });
    }
}

/// A request with what it borrows.
#[derive(Clone)]
struct OwnedRequest {
    key: Key,
    holder: HolderId,
    permits: u32,
    place: Option<HolderId>,
    ttl: Ttl,
    fenced: bool,
    in_all: Option<NonZeroU64>,
    waits: Option<Duration>,
    asked_at: Moment,
    timeout: Duration,
}

impl OwnedRequest {
    fn of(request: &AcquireRequest<'_>) -> OwnedRequest {
        let AcquireRequest {
            hold_ref,
            ttl,
            fenced,
            in_all,
            waits,
            asked_at,
            timeout,
            ..
        } = *request;
        OwnedRequest {
            key: hold_ref.key.clone(),
            holder: hold_ref.holder,
            permits: hold_ref.permits,
            place: request.place.copied(),
            ttl,
            fenced,
            in_all,
            waits,
            asked_at,
            timeout,
        }
    }

    fn request(&self) -> AcquireRequest<'_> {
        let hold_ref = HoldRef {
            permits: self.permits,
            ..HoldRef::one(&self.key, self.holder)
        };
        AcquireRequest {
            place: self.place.as_ref(),
            fenced: self.fenced,
            in_all: self.in_all,
            waits: self.waits,
            ..AcquireRequest::of(hold_ref, self.ttl, self.asked_at, self.timeout)
        }
    }
}

impl Backend for SimulatedBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            let asked = [OwnedRequest::of(&request)];
            let [owned] = asked.clone();
            let does = move |store: &MemoryBackend| answer_of(store.acquire(owned.request()));
            let dated = self.line.dated("acquire", request.deadline(), &asked, does);
            let (sent_at, answer) = dated.await;
            Ok(match answer? {
                Acquired::Granted(mut granted, terms) => {
                    granted.sent_at = sent_at;
                    Acquired::Granted(granted, terms)
                }
                refused => refused,
            })
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(async move {
            let asked: Vec<_> = requests.iter().map(OwnedRequest::of).collect();
            let owned = asked.clone();
            let deadline = requests.iter().map(AcquireRequest::deadline);
            let Some(deadline) = deadline.reduce(Moment::earlier) else {
                return Ok(AcquiredAll::Apart);
            };
            let does = move |store: &MemoryBackend| {
                let requests: Vec<_> = owned.iter().map(OwnedRequest::request).collect();
                answer_of(store.acquire_all(&requests))
            };
            let (sent_at, answer) = self.line.dated("acquire all", deadline, &asked, does).await;
            Ok(match answer? {
                AcquiredAll::Granted(mut granted) => {
                    granted
                        .iter_mut()
                        .for_each(|granted| granted.sent_at = sent_at);
                    AcquiredAll::Granted(granted)
                }
                refused => refused,
            })
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        let HoldRef {
            holder, permits, ..
        } = hold_ref;
        let key = hold_ref.key.clone();
        let does = move |store: &MemoryBackend, _| {
            let hold_ref = HoldRef {
                permits,
                ..HoldRef::one(&key, holder)
            };
            answer_of(store.release(hold_ref, Duration::ZERO))
        };
        Box::pin(self.line.call("release", false, timeout, does))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        let batch = batch.to_vec();
        let does = move |store: &MemoryBackend, _| {
            answer_of(store.renew(&batch, Within::call(Duration::ZERO)))
        };
        let useful = within.useful.max(within.timeout);
        Box::pin(self.line.call("renew", true, useful, does))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        let key = key.clone();
        let does =
            move |store: &MemoryBackend, _| answer_of(store.force_release(&key, Duration::ZERO));
        Box::pin(self.line.call("force release", false, timeout, does))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        let key = key.clone();
        let does = move |store: &MemoryBackend, _| answer_of(store.inspect(&key, Duration::ZERO));
        Box::pin(self.line.call("inspect", true, timeout, does))
    }

    fn store(&self) -> StoreKind {
        StoreKind::Memory
    }

    fn traits(&self) -> StoreTraits {
        StoreTraits {
            kinds: &Kind::ALL,
            tells_keepers: true,
            hands_over: true,
            ..StoreTraits::default()
        }
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(async move {
            let owned = OwnedRequest::of(&to);
            let does = move |store: &MemoryBackend, _| {
                answer_of(store.hand_over(from, owned.request(), spare))
            };
            let sent_at = clock::now();
            let timeout = to.deadline() - sent_at;
            let handed_over = self.line.call("hand over", true, timeout, does).await?;
            Ok(match handed_over {
                HandedOver::Done(mut granted, terms) => {
                    granted.sent_at = sent_at;
                    HandedOver::Done(granted, by_the_clock_here(terms))
                }
                HandedOver::NotHeld => HandedOver::NotHeld,
            })
        })
    }

    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        let (key, holder) = (hold_ref.key.clone(), hold_ref.holder);
        let does = move |store: &MemoryBackend, _| {
            answer_of(store.downgrade(HoldRef::one(&key, holder), ttl, Duration::ZERO))
        };
        Box::pin(self.line.call("downgrade", true, timeout, does))
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        let listened = key.clone();
        self.subscription(key.raw().to_owned(), move |store| store.listen(&listened))
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        let listened = key.clone();
        let name = [key.raw(), "\0", &holder.text()].concat();
        self.subscription(name, move |store| store.listen_alone(&listened, holder))
    }

    fn hears(&self, key: &Key) -> bool {
        let subscriptions = self.subscriptions.lock();
        let heard = subscriptions.get(key.raw()).and_then(Weak::upgrade);
        heard.is_some_and(|heard| heard.is_confirmed.load(Ordering::Acquire))
    }

    fn round_trip(&self, _: &Key) -> Duration {
        Duration::from_micros(self.line.round_trip.load(Ordering::Relaxed))
    }

    fn drained(&self) -> Boxed<'_> {
        Box::pin(self.line.pending.zero())
    }

    fn close(&self) {
        self.line.closed.store(true, Ordering::Relaxed);
    }
}

/// The store told its time at the moment of its answer. Here it counts from the answer's arrival.
fn by_the_clock_here(terms: FurtherTurns) -> FurtherTurns {
    let spare = match terms.spare {
        Spare::Tokens(tokens) => Spare::Tokens(tokens.heard_at(clock::now())),
        other => other,
    };
    FurtherTurns { spare, ..terms }
}

/// Sends an operation on a counter.
macro_rules! counted {
    ($this:ident, $name:literal, $timeout:ident, |$counters:ident| $does:expr) => {{
        let does = move |store: &MemoryBackend, _| {
            let $counters: &dyn Counters = store;
            answer_of($does)
        };
        Box::pin($this.line.call($name, false, $timeout, does))
    }};
}

impl Counters for SimulatedBackend {
    fn set<'a>(
        &'a self,
        CounterRef { key, kind }: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        let key = key.clone();
        counted!(self, "set", timeout, |counters| {
            counters.set(CounterRef { key: &key, kind }, value, Duration::ZERO)
        })
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        let key = key.clone();
        counted!(self, "limit", timeout, |counters| {
            counters.limit(&key, permits, Duration::ZERO)
        })
    }

    fn read<'a>(
        &'a self,
        CounterRef { key, kind }: CounterRef<'a>,
        timeout: Duration,
    ) -> Reply<'a, Option<i64>> {
        let key = key.clone();
        counted!(self, "read", timeout, |counters| {
            counters.read(CounterRef { key: &key, kind }, Duration::ZERO)
        })
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        let key = key.clone();
        counted!(self, "add", timeout, |counters| {
            counters.add(&key, permits, Duration::ZERO)
        })
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        let key = key.clone();
        counted!(self, "take", timeout, |counters| {
            counters.take(&key, permits, Duration::ZERO)
        })
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        let key = key.clone();
        counted!(self, "count down", timeout, |counters| {
            counters.count_down(&key, Duration::ZERO)
        })
    }

    fn delete<'a>(
        &'a self,
        CounterRef { key, kind }: CounterRef<'a>,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        let key = key.clone();
        counted!(self, "delete", timeout, |counters| {
            counters.delete(CounterRef { key: &key, kind }, Duration::ZERO)
        })
    }

    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        let key = key.clone();
        counted!(self, "draw ids", timeout, |counters| {
            counters.draw_ids(&key, count, secret, Duration::ZERO)
        })
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.listen(&Arc::new(counter.key.clone()))
    }
}

/// A subscription of this process, which listeners at one key share.
struct SharedSubscription {
    line: Arc<Line>,
    number: u64,
    is_confirmed: AtomicBool,
    confirmed: Notify,
}

impl Drop for SharedSubscription {
    fn drop(&mut self) {
        let (client, number) = (self.line.client, self.number);
        let at =
            simulated_now() + Duration::from_micros(self.line.round_trip.load(Ordering::Relaxed));
        let leave = move |store: &mut Store| store.unsubscribe(client, number);
        self.line.road.send(at, Box::new(leave));
    }
}

/// Subscribes, again and again until the store confirms it.
async fn subscribe(
    heard: Weak<SharedSubscription>,
    listener: ListensAt,
    raise: Arc<dyn Fn() + Send + Sync>,
) {
    while let Some(subscribed) = heard.upgrade() {
        let (line, number) = (subscribed.line.clone(), subscribed.number);
        drop(subscribed);
        let subscribed = line.subscribe(number, listener.clone(), raise.clone());
        if subscribed.await.is_ok() {
            if let Some(heard) = heard.upgrade() {
                heard.is_confirmed.store(true, Ordering::Release);
                heard.confirmed.notify_waiters();
            }
            return;
        }
        clock::sleep(Duration::from_millis(50)).await;
    }
}

struct Listener {
    heard: Arc<SharedSubscription>,
    wake_ups: TopicListener,
}

impl Listen for Listener {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            let confirmed = self.heard.confirmed.notified();
            let mut confirmed = std::pin::pin!(confirmed);
            confirmed.as_mut().enable();
            if !self.heard.is_confirmed.load(Ordering::Acquire) {
                confirmed.await;
            }
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        self.wake_ups.heard()
    }
}
