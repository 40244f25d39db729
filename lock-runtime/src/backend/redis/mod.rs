//! Redis, a single server, a master behind Sentinels, or a cluster: Redisson's `RLock` on the wire, our own scripts.
//!
//! | file | concept |
//! |---|---|
//! | `target` | URL → what to connect to |
//! | `sentinel/` | who the master of a service is, and being told when it moves |
//! | `cluster/`, `channels` | which node of a cluster has a key; by which channels waiters are woken there |
//! | `dial`, `link` | one connection; the command connection and its supervisor |
//! | `birth` | since when the server has kept what it was given, for quorums |
//! | `check` | what is asked of a server before it may keep locks |
//! | `script`, `scripts`, `operator_scripts`, `reply`, `lua/` | how a script is called, the script table, the strict reading of replies |
//! | `faults` | errors → what they say about the outcome |
//! | `acquire`, `server_clock` | acquire, dated in server time, and its compensation |
//! | `acquire_all` | several locks by one script |
//! | `exclusive` | what mutex and fenced lock send |
//! | `permits`, `permit_scripts` | leased permits, and their part of the script table |
//! | `counters`, `counter_scripts` | plain permits and latches, and their part of the script table |
//! | `fair` | what a fair lock sends: its queue |
//! | `read_write`, `rw_scripts` | what read/write locks send, and their part of the script table |
//! | `replicas/` | locks that replicas know of before they are handed out: `WAIT` |
//! | `topics`, `subscribe` | who listens; the pub/sub connection and its supervisor |

mod acquire;
mod acquire_all;
mod birth;
mod channels;
mod check;
mod cluster;
mod counter_scripts;
mod counters;
mod dial;
mod exclusive;
mod fair;
mod faults;
mod link;
mod operator_scripts;
mod permit_scripts;
mod permits;
mod read_write;
mod replicas;
mod reply;
mod rw_scripts;
mod script;
mod scripts;
mod sentinel;
mod server_clock;
mod subscribe;
mod target;
mod topics;

#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};

pub(crate) use self::birth::Birth;
pub use self::channels::ClusterChannels;
use self::cluster::{Cluster, Detour, Ears, Seeds};
use self::link::{Link, Live, Opened, Supervisor};
use self::operator_scripts::{ForceRelease, Inspect};
pub(crate) use self::replicas::Replicated;
use self::server_clock::ServerClock;
use self::subscribe::Subscriber;
pub(crate) use self::target::Target;
use self::topics::Topics;
use super::{
    Acquired, AcquiredAll, Backend, Claim, EventSink, Fault, HandedOver, Listen, Released, Renewal,
    Renewed, Reply, Seen, Stake,
};
use crate::clock::{self, Moment};
use crate::error::{LockError, StoreError};
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;
use crate::term::Term;

/// Acquires under way at once. More would only queue in front of renewals and releases.
const MAX_ACQUIRES: usize = 1024;
/// Connecting and checking, all in all.
const CONNECT: Duration = Duration::from_secs(5);
/// Keys in one renewal: about 6 µs of the server's time each.
const RENEW_BATCH: usize = 128;

const CLOSED: &str = "the lock manager was shut down";
const GONE: &str = "the runtime that built the lock manager is gone";

/// How a backend uses its server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What all keys start with; also names the control channel.
    pub(crate) namespace: String,
    /// For connecting, for checks, and for what is done in the background.
    pub(crate) call_timeout: Duration,
    /// Refuse a server that may evict held locks, instead of warning.
    pub(crate) strict: bool,
    /// Connect in the background; what is wrong with the server is told by the first call.
    pub(crate) lazy: bool,
    /// Where to note the server's restarts, for whoever needs to know of them.
    pub(crate) birth: Option<Arc<Birth>>,
    /// By which channels waiters are woken in a cluster.
    pub(crate) channels: ClusterChannels,
}

/// Whom to ask for a key.
#[derive(Debug)]
enum Nodes {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// Locks in one Redis server, or in a cluster of them.
pub(crate) struct RedisBackend {
    inner: Arc<Inner>,
}

/// Shared with compensations. The supervisors do not hold it.
struct Inner {
    target: Arc<Target>,
    control: Arc<str>,
    call_timeout: Duration,
    handle: Handle,
    nodes: Nodes,
    topics: Arc<Topics>,
    acquires: Semaphore,
    /// Compensations under way.
    pending: watch::Sender<usize>,
    /// Both supervisors end when it becomes true or is gone.
    closed: watch::Sender<bool>,
}

impl RedisBackend {
    /// Connects on the runtime of `handle`, where the backend's tasks live, and checks the server. With
    /// `settings.lazy`, only starts to do so.
    pub(crate) async fn connect(
        target: Target,
        settings: Settings,
        handle: Handle,
        events: EventSink,
    ) -> Result<Arc<RedisBackend>, LockError> {
        #[cfg(feature = "tls-rustls")]
        if target.is_tls() {
            // An error means that the program has already chosen a provider: its choice stands.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        if let Some(seeds) = target.seeds() {
            let seeds = seeds.clone();
            return RedisBackend::connect_to_cluster(target, seeds, settings, handle, events).await;
        }
        let target = Arc::new(target);
        let clock = Arc::new(ServerClock::default());
        let check = check::Check {
            namespace: settings.namespace.clone(),
            strict: settings.strict,
            timeout: settings.call_timeout,
            handle: handle.clone(),
            birth: settings.birth.clone(),
            channels: ClusterChannels::Classic,
            slot: None,
        };
        let (first, check) = if settings.lazy {
            (None, check)
        } else {
            let (server, clock) = (target.clone(), clock.clone());
            // On the runtime of the handle, for the connection is driven by a task where it was opened.
            let opening = handle.spawn(async move {
                let refused = |refusal: check::Refusal| refusal.into_error(server.shown());
                let opened = Opened::open(&server, check.timeout, &clock)
                    .await
                    .map_err(|fault| refused(check::Refusal::Fault(fault)))?;
                check
                    .look_at_birth(&opened.connection)
                    .await
                    .map_err(|fault| refused(check::Refusal::Fault(fault)))?;
                check
                    .run(&opened.connection, &clock)
                    .await
                    .map_err(refused)?;
                Ok::<_, LockError>((opened, check))
            });
            let stop = opening.abort_handle();
            match tokio::time::timeout(CONNECT, opening).await {
                Ok(Ok(opened)) => opened.map(|(opened, check)| (Some(opened), check))?,
                Ok(Err(_)) => return Err(Fault::Closed(GONE).into_error(target.shown())),
                Err(_) => {
                    stop.abort();
                    let fault =
                        Fault::NotDone(StoreError::new(format!("no answer in {CONNECT:?}")));
                    return Err(fault.into_error(target.shown()));
                }
            }
        };

        let closed = watch::Sender::new(false);
        let checked = first.as_ref().map(|opened| opened.master.clone());
        let supervisor = Supervisor {
            target: target.clone(),
            check,
            checked,
            clock,
            suspicion: Arc::new(Notify::new()),
            closed: closed.subscribe(),
            member: None,
        };
        let link = Link::start(supervisor, first);
        let topics = Arc::new(Topics::default());
        let control: Arc<str> = format!("lock:control:{}", settings.namespace).into();
        let (tried, mut first_try) = watch::channel(false);
        let subscriber = Subscriber {
            target: target.clone(),
            topics: topics.clone(),
            control: control.clone(),
            events,
            timeout: settings.call_timeout,
            tried,
            closed: closed.subscribe(),
        };
        handle.spawn(subscriber.run());
        if let Some(sentinels) = target.sentinels() {
            let (sentinels, timeout) = (sentinels.clone(), settings.call_timeout);
            handle.spawn(sentinel::watch(sentinels, timeout, closed.subscribe()));
        }
        if !settings.lazy {
            // So that a forced release right after the first acquire is heard. Not needed to hold locks.
            let tried = first_try.wait_for(|tried| *tried);
            let _ = tokio::time::timeout(settings.call_timeout, tried).await;
        }
        let inner = Arc::new(Inner {
            target,
            control,
            call_timeout: settings.call_timeout,
            handle,
            nodes: Nodes::One(link),
            topics,
            acquires: Semaphore::new(MAX_ACQUIRES),
            pending: watch::Sender::new(0),
            closed,
        });
        Ok(Arc::new(RedisBackend { inner }))
    }

    async fn connect_to_cluster(
        target: Target,
        seeds: Arc<Seeds>,
        settings: Settings,
        handle: Handle,
        events: EventSink,
    ) -> Result<Arc<RedisBackend>, LockError> {
        let closed = watch::Sender::new(false);
        let (call_timeout, lazy) = (settings.call_timeout, settings.lazy);
        let control: Arc<str> = format!("lock:control:{}", settings.namespace).into();
        let cluster = Cluster::new(
            seeds,
            target.shown(),
            settings,
            handle.clone(),
            closed.subscribe(),
        );
        if !lazy {
            // On the runtime of the handle, as above.
            let until = clock::now() + CONNECT.mul_f64(0.9);
            let opening = handle.spawn(cluster.clone().connect(until));
            let stop = opening.abort_handle();
            match tokio::time::timeout(CONNECT, opening).await {
                Ok(Ok(opened)) => opened?,
                Ok(Err(_)) => return Err(Fault::Closed(GONE).into_error(target.shown())),
                Err(_) => {
                    stop.abort();
                    let fault =
                        Fault::NotDone(StoreError::new(format!("no answer in {CONNECT:?}")));
                    return Err(fault.into_error(target.shown()));
                }
            }
        }
        handle.spawn(cluster.clone().keep_table());
        let topics = Arc::new(Topics::default());
        let (tried, mut first_try) = watch::channel(false);
        let ears = Ears {
            cluster: cluster.clone(),
            topics: topics.clone(),
            control: control.clone(),
            events,
            tried,
            closed: closed.subscribe(),
        };
        handle.spawn(ears.run());
        if !lazy {
            let tried = first_try.wait_for(|tried| *tried);
            let _ = tokio::time::timeout(call_timeout, tried).await;
        }
        let inner = Arc::new(Inner {
            target: Arc::new(target),
            control,
            call_timeout,
            handle,
            nodes: Nodes::Cluster(cluster),
            topics,
            acquires: Semaphore::new(MAX_ACQUIRES),
            pending: watch::Sender::new(0),
            closed,
        });
        Ok(Arc::new(RedisBackend { inner }))
    }
}

impl Drop for RedisBackend {
    /// Compensations that are under way get one call's time before the connections end.
    fn drop(&mut self) {
        if *self.inner.pending.borrow() == 0 {
            self.inner.close();
            return;
        }
        let inner = self.inner.clone();
        self.inner.handle.spawn(async move {
            let _ = tokio::time::timeout(inner.call_timeout, inner.drained()).await;
            inner.close();
        });
    }
}

impl Inner {
    fn close(&self) {
        self.closed.send_replace(true);
    }

    /// The one connection of a single server.
    #[cfg(test)]
    fn link(&self) -> &Arc<Link> {
        match &self.nodes {
            Nodes::One(link) => link,
            Nodes::Cluster(_) => panic!("a cluster has many"),
        }
    }

    async fn drained(&self) {
        // The sender is in `self`: no error.
        let _ = self
            .pending
            .subscribe()
            .wait_for(|pending| *pending == 0)
            .await;
    }

    /// The connection to whoever has the key, waiting for it until `deadline`, and what time it is then: `now`, if
    /// there was one.
    async fn route(
        &self,
        key: &Key,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        match &self.nodes {
            Nodes::One(link) => link.get(now, deadline).await,
            // Boxed, so that no other future has to hold it.
            Nodes::Cluster(cluster) => Box::pin(cluster.route(key.slot(), now, deadline)).await,
        }
    }

    /// Whether a node of a cluster has refused because it was not the one to ask, so that nothing was executed.
    fn detour<T>(&self, answer: &Result<T, Fault>) -> Option<Detour> {
        match (&self.nodes, answer) {
            (Nodes::Cluster(_), Err(fault)) => Detour::of(fault),
            _ => None,
        }
    }

    /// Whom to ask instead of `from`, and what time it is then: what is sent now is another request.
    async fn follow(
        &self,
        detour: Detour,
        from: &Live,
        key: &Key,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        let detour = match key.kind() {
            // The timeout keys of other readers are known to the script alone. Where they have not arrived, their owners
            // would count as dead.
            Kind::Read | Kind::Write => detour.without_asking(),
            _ => detour,
        };
        match &self.nodes {
            Nodes::One(link) => link.get(clock::now(), deadline).await,
            Nodes::Cluster(cluster) => {
                Box::pin(cluster.follow(detour, from, key.slot(), deadline)).await
            }
        }
    }

    /// Asks whoever has the key.
    async fn call<S: script::Script>(
        &self,
        key: &Key,
        script: &S,
        timeout: Duration,
    ) -> Result<S::Reply, Fault> {
        let asked_at = clock::now();
        let deadline = asked_at + timeout;
        let (mut live, mut now) = self.route(key, asked_at, deadline).await?;
        loop {
            let answer = live.call(script, now, deadline).await;
            let Some(detour) = self.detour(&answer) else {
                return answer;
            };
            (live, now) = self.follow(detour, &live, key, deadline).await?;
        }
    }

    /// Publishes what a script could not. In the background, once: a message is a hint.
    fn publish(&self, channel: String, payload: String) {
        let everywhere = channel == *self.control;
        let published: Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>> = match &self.nodes {
            Nodes::One(link) => {
                let Some(live) = link.live() else { return };
                Box::pin(async move { live.publish("PUBLISH", &channel, &payload).await })
            }
            Nodes::Cluster(cluster) => {
                Box::pin(cluster.clone().publish(channel, payload, everywhere))
            }
        };
        let timeout = self.call_timeout;
        self.handle.spawn(async move {
            if let Ok(Err(fault)) = tokio::time::timeout(timeout, published).await {
                tracing::debug!(reason = %fault, "a release could not be published");
            }
        });
    }

    /// Gives back what a stake names, on that connection.
    async fn release(
        &self,
        live: &Live,
        stake: Stake<'_>,
        now: Moment,
        deadline: Moment,
    ) -> Result<GaveBack, Fault> {
        match stake.key.kind() {
            Kind::Mutex | Kind::Fenced => {
                exclusive::release(self, live, stake, now, deadline).await
            }
            Kind::Permits => permits::release(self, live, stake, now, deadline).await,
            Kind::Fair => fair::release(self, live, stake, now, deadline).await,
            Kind::Read | Kind::Write => read_write::release(self, live, stake, now, deadline).await,
        }
    }

    /// An answer that ends a hold has to come from the master: one that was deposed, or came back empty, does not know
    /// it. Asks the sentinels, where there are any; where none answers, the node's own word counts.
    async fn vouch(&self, from: Option<Live>, deadline: Moment) -> Result<(), Fault> {
        let Some(sentinels) = self.target.sentinels() else {
            return Ok(());
        };
        let Nodes::One(link) = &self.nodes else {
            return Ok(());
        };
        let asked = sentinels.resolve(deadline.remaining()).await;
        let same_connection = match (&from, link.live()) {
            (Some(from), Some(live)) => from.is_one_with(&live),
            _ => false,
        };
        let same_node = match (&from, &asked) {
            (Some(from), Ok(named)) => from.master() == Some(&named.address),
            _ => asked.is_err(),
        };
        if same_connection && same_node {
            return Ok(());
        }
        link.suspect();
        Err(Fault::Unknown(StoreError::new(
            "a node that may not be the master any more does not know the holder",
        )))
    }

    async fn renew(&self, batch: &[Renewal], timeout: Duration) -> Result<Vec<Renewed>, Fault> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let asked_at = clock::now();
        let deadline = asked_at + timeout;
        let link = match &self.nodes {
            Nodes::One(link) => link,
            // A node that has lost a slot says so: what it answers needs nobody to vouch for it.
            Nodes::Cluster(cluster) => {
                return Box::pin(cluster.renew(self, batch, deadline)).await;
            }
        };
        let before = link.live();
        let (live, now) = link.get(asked_at, deadline).await?;
        let items: Vec<&Renewal> = batch.iter().collect();
        let mut answers = self.renew_all_on(&live, &items, now, deadline).await?;
        if answers.contains(&Renewed::NotHeld) && self.vouch(before, deadline).await.is_err() {
            for answer in &mut answers {
                if *answer == Renewed::NotHeld {
                    *answer = Renewed::Unknown;
                }
            }
        }
        Ok(answers)
    }

    /// The watchdog groups by kind; a writer that has just become a reader may be among others of its old kind.
    async fn renew_all_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        deadline: Moment,
    ) -> Result<Vec<Renewed>, Fault> {
        let is_read = |item: &&&Renewal| item.key.kind() == Kind::Read;
        let reads = batch.iter().filter(is_read).count();
        if reads == 0 || reads == batch.len() {
            return self.renew_on(live, batch, now, deadline).await;
        }
        let (reads, others): (Vec<_>, Vec<_>) =
            batch.iter().copied().partition(|item| is_read(&item));
        let (of_reads, of_others) = tokio::join!(
            self.renew_on(live, &reads, now, deadline),
            self.renew_on(live, &others, now, deadline),
        );
        if let (Err(fault), Err(_)) = (&of_reads, &of_others) {
            return Err(fault.clone());
        }
        // One script that failed says nothing about the holds of the other.
        let answers = |answers: Result<Vec<Renewed>, Fault>| {
            let answers = answers.unwrap_or_default().into_iter();
            answers.chain(std::iter::repeat(Renewed::Unknown))
        };
        let (mut of_reads, mut of_others) = (answers(of_reads), answers(of_others));
        let answer = |item: &&Renewal| match item.key.kind() {
            Kind::Read => of_reads.next(),
            _ => of_others.next(),
        };
        let answers: Option<Vec<_>> = batch.iter().map(answer).collect();
        Ok(answers.unwrap_or_default())
    }

    /// Those of one script, on that connection.
    async fn renew_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        deadline: Moment,
    ) -> Result<Vec<Renewed>, Fault> {
        match batch.first().map(|item| Sort::of(item.key.kind())) {
            None => Ok(Vec::new()),
            Some(Sort::Permits) => permits::renew(live, batch, now, deadline).await,
            Some(Sort::Reads) => read_write::renew(live, batch, now, deadline).await,
            Some(Sort::Others) => exclusive::renew(live, batch, now, deadline).await,
        }
    }

    async fn inspect(&self, key: &Key, timeout: Duration) -> Result<Option<Seen>, Fault> {
        let [queue, _] = fair::queue_keys(key);
        let script = Inspect {
            lock: key.raw(),
            queue: &queue,
        };
        match self.call(key, &script, timeout).await {
            // No hash: it may be a counter.
            Err(Fault::Foreign { key: foreign, why }) => {
                match permits::inspect(self, key, timeout).await {
                    Err(Fault::Foreign { .. }) => Err(Fault::Foreign { key: foreign, why }),
                    answer => answer,
                }
            }
            answer => answer,
        }
    }

    async fn force_release(&self, key: &Key, timeout: Duration) -> Result<bool, Fault> {
        // Whatever stands there is released: the kind of `key` says nothing about it.
        let [queue, _] = fair::queue_keys(key);
        let script = ForceRelease {
            lock: key.raw(),
            queue: &queue,
            channel: &channel(&key.as_kind(Kind::Mutex)),
            control: &self.control,
            rw_channel: &channel(&key.as_kind(Kind::Write)),
        };
        let reply = match self.call(key, &script, timeout).await {
            // No hash: it may be a semaphore.
            Err(Fault::Foreign { key: foreign, why }) => {
                return match permits::force_release(self, key, timeout).await {
                    Err(Fault::Foreign { .. }) => Err(Fault::Foreign { key: foreign, why }),
                    answer => answer,
                };
            }
            reply => reply?,
        };
        for (channel, payload) in reply.unpublished {
            self.publish(channel, payload);
        }
        Ok(reply.released)
    }
}

impl Backend for RedisBackend {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, Acquired> {
        Box::pin(acquire::acquire(&self.inner, claim))
    }

    fn acquire_all<'a>(&'a self, claims: &'a [Claim<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(acquire_all::acquire_all(&self.inner, claims))
    }

    fn release<'a>(&'a self, stake: Stake<'a>, timeout: Duration) -> Reply<'a, Released> {
        Box::pin(async move {
            let asked_at = clock::now();
            let deadline = asked_at + timeout;
            let inner = &self.inner;
            let (mut live, mut now) = inner.route(stake.key, asked_at, deadline).await?;
            loop {
                let answer = inner.release(&live, stake, now, deadline).await;
                if let Some(detour) = inner.detour(&answer) {
                    (live, now) = inner.follow(detour, &live, stake.key, deadline).await?;
                    continue;
                }
                return match answer? {
                    GaveBack::Done => Ok(Released::Done),
                    GaveBack::NotHeld { .. } => {
                        inner.vouch(Some(live), deadline).await?;
                        Ok(Released::NotHeld)
                    }
                };
            }
        })
    }

    fn hand_over<'a>(&'a self, from: HolderId, to: Claim<'a>) -> Reply<'a, HandedOver> {
        Box::pin(async move {
            match to.stake.key.kind() {
                // Readers come in beside each other: none of them hands over.
                Kind::Mutex | Kind::Fenced | Kind::Read | Kind::Write => {
                    exclusive::hand_over(&self.inner, from, to).await
                }
                // Nobody owns the turn at a semaphore, so nobody hands it over.
                Kind::Permits => Ok(HandedOver::NotHeld),
                // Its heir is the first in the store's queue.
                Kind::Fair => Ok(HandedOver::NotHeld),
            }
        })
    }

    fn downgrade<'a>(
        &'a self,
        stake: Stake<'a>,
        term: Term,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(read_write::downgrade(&self.inner, stake, term, timeout))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], timeout: Duration) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.inner.renew(batch, timeout))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Seen>> {
        Box::pin(self.inner.inspect(key, timeout))
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        Box::new(self.inner.topics.listen(channel(key)))
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        Box::new(self.inner.topics.listen(fair::own_channel(key, holder)))
    }

    fn renew_batch(&self) -> usize {
        RENEW_BATCH
    }

    fn round_trip(&self) -> Duration {
        match &self.inner.nodes {
            Nodes::One(link) => link.round_trip(),
            Nodes::Cluster(cluster) => cluster.round_trip(),
        }
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.inner.drained())
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("target", &self.inner.target)
            .field("nodes", &self.inner.nodes)
            .finish_non_exhaustive()
    }
}

/// Holds that are renewed by the same script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sort {
    Permits,
    Reads,
    Others,
}

impl Sort {
    fn of(kind: Kind) -> Sort {
        match kind {
            Kind::Permits => Sort::Permits,
            Kind::Read => Sort::Reads,
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => Sort::Others,
        }
    }
}

/// How a release went, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GaveBack {
    Done,
    /// Nothing was held at that time, in µs of the server's TIME.
    NotHeld {
        time: u64,
    },
}

/// Where releases of a key are published.
fn channel(key: &Key) -> String {
    match key.kind() {
        Kind::Mutex | Kind::Fenced | Kind::Fair => key.prefixed("redisson_lock__channel"),
        Kind::Permits => counters::channel_of_permits(key),
        Kind::Read | Kind::Write => key.prefixed("redisson_rwlock"),
    }
}
