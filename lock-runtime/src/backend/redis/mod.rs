//! Redis, as a single server, a master behind Sentinels, or a cluster: Redisson's `RLock` on the wire, with our own
//! scripts.
//!
//! | file or folder | concept |
//! |---|---|
//! | `connect` | opening a backend |
//! | `router` | the parts that all requests share: the connection for a key, and the check that its answer counts |
//! | `kinds/` | each lock kind's requests and part of the script table; renewals, inspect, forced release |
//! | `scripting/` | calling scripts, those of a mutex, the strict parsing of replies, the outcome that an error implies, `lua/` |
//! | `connection/` | URL → server; one connection, its supervisor, the check of a server before it may keep locks |
//! | `pubsub/` | the messages, the listeners; the pub/sub connection and its supervisor |
//! | `sentinel/` | finding the master of a service, and noticing when it moves |
//! | `cluster/` | finding the node of a cluster that has a key; the channels that wake waiters there |
//! | `replicas/` | locks that replicas confirm before they are handed out: `WAIT` |

mod cluster;
mod connect;
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
use std::time::Duration;

pub(crate) use self::connection::{DialOptions, Target};
use self::kinds::{acquire, acquire_all, exclusive, fair, release};
use self::pubsub::messages::channel;
use self::replicas::ReplicaConfirmations;
use self::router::{Nodes, Router};
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, Counters, Directory, HandedOver,
    HoldRef, Listen, Released, Renewal, Renewed, Reply, Snapshot, StoreTraits, WaitingList,
    WithRelease, Within,
};
use crate::values::{Checkup, HolderId, Key, Kind, LockError, StoreKind, Ttl, rare};

/// Locks in one Redis server, or in a cluster of them.
pub(crate) struct RedisBackend {
    router: Arc<Router>,
    /// `None` if no replicas have to confirm anything.
    replicas: Option<ReplicaConfirmations>,
}

impl Drop for RedisBackend {
    /// Compensations that are under way get the time of one call before the connections end.
    fn drop(&mut self) {
        if self.router.pending.count() == 0 {
            self.router.close();
            return;
        }
        let router = self.router.clone();
        self.router.handle.spawn(async move {
            let _ = tokio::time::timeout(router.call_timeout, router.pending.zero()).await;
            router.close();
        });
    }
}

impl Backend for RedisBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        match &self.replicas {
            None => Box::pin(async move { acquire::acquire(&self.router, &request).await }),
            Some(replicas) => Box::pin(replicas.acquire(request)),
        }
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        match &self.replicas {
            None => Box::pin(acquire_all::acquire_all(&self.router, requests)),
            Some(replicas) => Box::pin(replicas.acquire_all(requests)),
        }
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.release_with(hold_ref, WithRelease::default(), timeout)
    }

    fn release_with<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        with: WithRelease<'a>,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        // If replicas confirm grants, a holder on the list asks first and believes no message.
        let next = with.next.filter(|_| self.replicas.is_none());
        let with = WithRelease { next, ..with };
        Box::pin(release::release(&self.router, hold_ref, with, timeout))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        match &self.replicas {
            None => Box::pin(self.router.renew(batch, within)),
            Some(replicas) => Box::pin(replicas.renew(batch, within)),
        }
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(self.router.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        Box::pin(self.router.inspect(key, timeout))
    }

    fn store(&self) -> StoreKind {
        StoreKind::Redis
    }

    fn traits(&self) -> StoreTraits {
        StoreTraits {
            kinds: &Kind::ALL,
            // The turns that a keeper grants by itself would not be confirmed by replicas.
            tells_keepers: self.replicas.is_none(),
            hands_over: true,
            ..StoreTraits::default()
        }
    }

    /// In a cluster, the keys of one lock have to be in one slot.
    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        match &self.router.nodes {
            Nodes::One(_) => Ok(()),
            Nodes::Cluster(_) => key.check_one_slot(),
        }
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(async move {
            let handed = exclusive::hand_over(&self.router, from, to, spare).await?;
            match &self.replicas {
                None => Ok(handed),
                Some(replicas) => rare(replicas.confirm_hand_over(to, handed)).await,
            }
        })
    }

    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(self.router.downgrade(hold_ref, ttl, timeout))
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(&*self.router)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(&*self.router)
    }

    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        match &self.replicas {
            None => Box::pin(self.router.health(timeout)),
            Some(replicas) => Box::pin(replicas.health(timeout)),
        }
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        Box::new(self.router.topics.listen(channel(key)))
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        Box::new(self.router.topics.listen(fair::own_channel(key, holder)))
    }

    fn waiting_list(&self, key: &Key) -> Option<&dyn WaitingList> {
        self.router.keeps_list(key).then_some(&*self.router as _)
    }

    fn hears(&self, key: &Key) -> bool {
        let topics = &self.router.topics;
        // Nearly always there are no topics, and this check costs less than making the channel's name.
        !topics.is_empty() && topics.is_open(&channel(key))
    }

    fn wanted_by(&self, key: &Key) -> u64 {
        self.router.wanted.by(key)
    }

    fn place(&self, key: &Key) -> usize {
        match &self.router.nodes {
            Nodes::One(_) => 0,
            Nodes::Cluster(cluster) => cluster.place(key.slot()),
        }
    }

    fn round_trip(&self, key: &Key) -> Duration {
        match &self.router.nodes {
            Nodes::One(link) => link.round_trip(),
            Nodes::Cluster(cluster) => cluster.round_trip(key.slot()),
        }
    }

    fn drained(&self) -> Boxed<'_> {
        Box::pin(self.router.pending.zero())
    }

    fn close(&self) {
        self.router.close();
    }
}
