//! Redis, a single server, a master behind Sentinels, or a cluster: Redisson's `RLock` on the wire, our own scripts.
//!
//! | file or folder | concept |
//! |---|---|
//! | `router` | the connection to ask for a key, and the check that its answer counts |
//! | `kinds/` | each lock kind's requests and part of the script table; renewals, inspect, forced release |
//! | `scripting/` | calling scripts, the strict parsing of replies, the outcome that an error implies, `lua/` |
//! | `connection/` | URL → server; one connection, its supervisor, the check of a server before it may keep locks |
//! | `pubsub/` | the listeners; the pub/sub connection and its supervisor |
//! | `sentinel/` | finding the master of a service, and noticing when it moves |
//! | `cluster/` | finding the node of a cluster that has a key; the channels that wake waiters there |
//! | `replicas/` | locks that replicas know of before they are handed out: `WAIT` |

mod cluster;
mod connection;
#[cfg(fuzzing)]
pub mod fuzz;
mod kinds;
mod pubsub;
mod replicas;
mod router;
mod scripting;
mod sentinel;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use self::connection::{DialOptions, Target};
use self::kinds::{acquire, acquire_all, counters, exclusive, fair, listed, read_write};
use self::pubsub::topics::Topics;
pub(crate) use self::replicas::Replicated;
use self::router::Nodes;
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, Counters, Directory, HandOff,
    HandedOver, HoldRef, Listen, Released, Renewal, Renewed, Reply, Shared, Snapshot, Within,
};
use crate::values::{
    Checkup, Count, HolderId, Key, Kind, LockError, StoreError, StoreKind, Ttl, UnusedTokens, clock,
};

/// On which the victims of forced releases are named, those of all namespaces: managers with different namespaces may
/// have the same key, for the one's namespace can be the beginning of the other's name.
const CONTROL: &str = "lock:control:released";

/// Locks in one Redis server, or in a cluster of them.
pub(crate) struct RedisBackend {
    inner: Arc<Inner>,
}

/// Shared with compensations. The supervisors do not hold it.
struct Inner {
    target: Arc<Target>,
    call_timeout: Duration,
    /// See [`Options`](crate::values::Options).
    crowd_from: usize,
    /// The kinds whose rights have been looked at: a bit for each.
    rights_of: AtomicU8,
    /// The server has refused the list of those that wait in a crowd.
    list_is_refused: AtomicBool,
    handle: Handle,
    nodes: Nodes,
    topics: Arc<Topics>,
    /// Compensations under way.
    pending: Arc<Count>,
    /// Both supervisors end when it becomes true or is gone.
    closed: watch::Sender<bool>,
}

impl Drop for RedisBackend {
    /// Compensations that are under way get one call's time before the connections end.
    fn drop(&mut self) {
        if self.inner.pending.count() == 0 {
            self.inner.close();
            return;
        }
        let inner = self.inner.clone();
        self.inner.handle.spawn(async move {
            let _ = tokio::time::timeout(inner.call_timeout, inner.pending.zero()).await;
            inner.close();
        });
    }
}

impl Inner {
    /// Whether all keys are at one node.
    fn is_alone(&self) -> bool {
        matches!(self.nodes, Nodes::One(_))
    }

    /// Whether those that wait for the lock are on a list. In a cluster, its key could be at another node than the lock's
    /// while their slot moves.
    fn keeps_list(&self, key: &Key) -> bool {
        key.kind().is_mutex() && self.is_alone() && !self.list_is_refused.load(Ordering::Relaxed)
    }

    /// Notes that the server has refused the list, for a reason that it does not have for other requests.
    fn refuses_list(&self, why: &StoreError) {
        if !self.list_is_refused.swap(true, Ordering::Relaxed) {
            tracing::info!(
                reason = %why,
                "processes that want one lock cannot wait on a list: where they are many, all of them ask at each release"
            );
        }
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl Backend for RedisBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move { acquire::acquire(&self.inner, &request).await })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(acquire_all::acquire_all(&self.inner, requests))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.release_with(hold_ref, None, timeout)
    }

    fn release_with<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        unused: Option<&'a UnusedTokens>,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(async move {
            let (inner, now) = (&self.inner, clock::now());
            let deadline = now + timeout;
            match inner.give_back(hold_ref, unused, now, deadline).await? {
                (GaveBack::Done, _) => Ok(Released::Done),
                (GaveBack::NotHeld { .. }, from) => {
                    Box::pin(inner.vouch(Some(from), deadline)).await?;
                    Ok(Released::NotHeld)
                }
            }
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.inner.renew(batch, within))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.inner.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        Box::pin(self.inner.inspect(key, timeout))
    }

    fn store(&self) -> StoreKind {
        StoreKind::Redis
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    /// In a cluster, the keys of one lock have to be in one slot.
    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        match &self.inner.nodes {
            Nodes::One(_) => Ok(()),
            Nodes::Cluster(_) => key.check_one_slot(),
        }
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

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        Box::pin(self.inner.health(timeout))
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        let listener = self.inner.topics.listen(channel(key));
        // The release of a write sends two messages, and so may each release in a cluster, by both sorts of channels.
        match key.kind().is_mutex() && self.inner.is_alone() {
            true => Box::new(listener),
            false => Box::new(listener.uncounted()),
        }
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        Box::new(self.inner.topics.listen(fair::own_channel(key, holder)))
    }

    fn listen_in_crowd(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        match self.inner.keeps_list(key) {
            true => listed::listen(&self.inner.topics, key, holder),
            false => self.listen(key),
        }
    }

    fn hears(&self, key: &Key) -> bool {
        let topics = &self.inner.topics;
        // Nearly always nobody waits for anything: the name of the channel costs more than that.
        !topics.is_empty() && topics.is_open(&channel(key))
    }

    fn waits_on_list(&self, key: &Key, holder: HolderId) -> bool {
        self.inner.keeps_list(key) && listed::waits_on_list(&self.inner.topics, key, holder)
    }

    fn tells_keepers(&self) -> bool {
        true
    }

    fn place(&self, key: &Key) -> usize {
        match &self.inner.nodes {
            Nodes::One(_) => 0,
            Nodes::Cluster(cluster) => cluster.place(key.slot()),
        }
    }

    fn round_trip(&self, key: &Key) -> Duration {
        match &self.inner.nodes {
            Nodes::One(link) => link.round_trip(),
            Nodes::Cluster(cluster) => cluster.round_trip(key.slot()),
        }
    }

    fn drained(&self) -> Boxed<'_> {
        Box::pin(self.inner.pending.zero())
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl HandOff for RedisBackend {
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(async move {
            match to.hold_ref.key.kind() {
                // Readers come in beside each other: none of them hands over.
                Kind::Mutex | Kind::Fenced | Kind::Read | Kind::Write => {
                    exclusive::hand_over(&self.inner, from, to, spare).await
                }
                // The turn at a semaphore has no owner, so it cannot be handed over.
                Kind::Semaphore => Ok(HandedOver::NotHeld),
                // Its successor is the first in the store's queue.
                Kind::Fair => Ok(HandedOver::NotHeld),
            }
        })
    }
}

impl Shared for RedisBackend {
    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(read_write::downgrade(&self.inner, hold_ref, ttl, timeout))
    }
}

/// The outcome of a release, and the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GaveBack {
    Done,
    /// Nothing was held at that time, in µs of the server's TIME.
    NotHeld {
        time: u64,
    },
}

/// Returns the channel on which releases of a key are published.
fn channel(key: &Key) -> String {
    match key.kind() {
        Kind::Mutex | Kind::Fenced | Kind::Fair => key.prefixed("redisson_lock__channel"),
        Kind::Semaphore => counters::channel_of_permits(key),
        Kind::Read | Kind::Write => key.prefixed("redisson_rwlock"),
    }
}
