//! Redis, a single server, a master behind Sentinels, or a cluster: Redisson's `RLock` on the wire, our own scripts.
//!
//! | file | concept |
//! |---|---|
//! | `target` | URL → what to connect to |
//! | `connect`, `nodes` | how a backend begins; whom it asks for a key, and whose word counts |
//! | `sentinel/` | who the master of a service is, and being told when it moves |
//! | `cluster/`, `channels` | which node of a cluster has a key; by which channels waiters are woken there |
//! | `dial`, `link` | one connection; the command connection and its supervisor |
//! | `birth` | since when the server has kept what it was given, for quorums |
//! | `check` | what is asked of a server before it may keep locks |
//! | `script`, `scripts`, `operator_scripts`, `reply`, `lua/` | how a script is called, the script table, the strict reading of replies |
//! | `rights` | which rights are missing when a script is refused |
//! | `faults` | errors → what they say about the outcome |
//! | `acquire`, `server_clock` | acquire, dated in server time, and its compensation |
//! | `acquire_all` | several locks by one script |
//! | `renewals`, `operators` | renewals by sort of hold; inspect and forced release |
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
mod connect;
mod counter_scripts;
mod counters;
mod dial;
mod exclusive;
mod fair;
mod faults;
#[cfg(fuzzing)]
pub mod fuzz;
mod link;
mod nodes;
mod operator_scripts;
mod operators;
mod permit_scripts;
mod permits;
mod read_write;
mod renewals;
mod replicas;
mod reply;
mod rights;
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
use tokio::sync::watch;

pub(crate) use self::birth::{Birth, Roll};
pub use self::channels::ClusterChannels;
pub(crate) use self::connect::Settings;
use self::link::Live;
use self::nodes::Nodes;
pub(crate) use self::replicas::Replicated;
pub(crate) use self::target::Target;
use self::topics::Topics;
use super::{
    Acquired, AcquiredAll, Backend, Claim, Fault, HandedOver, Listen, Released, Renewal, Renewed,
    Reply, Seen, Stake,
};
use crate::clock::{self, Moment};
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::Kind;
use crate::term::Term;

/// Keys in one renewal: about 6 µs of the server's time each.
const RENEW_BATCH: usize = 128;

/// On which the victims of forced releases are named, those of all namespaces: managers with different namespaces may
/// have the same key, for the one's namespace can be the beginning of the other's name.
const CONTROL: &str = "lock:control:released";

const CLOSED: &str = "the lock manager was shut down";
const GONE: &str = "the runtime that built the lock manager is gone";

/// Locks in one Redis server, or in a cluster of them.
pub(crate) struct RedisBackend {
    inner: Arc<Inner>,
}

/// Shared with compensations. The supervisors do not hold it.
struct Inner {
    target: Arc<Target>,
    call_timeout: Duration,
    handle: Handle,
    nodes: Nodes,
    topics: Arc<Topics>,
    /// Compensations under way.
    pending: watch::Sender<usize>,
    /// Both supervisors end when it becomes true or is gone.
    closed: watch::Sender<bool>,
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

    async fn drained(&self) {
        // The sender is in `self`: no error.
        let _ = self
            .pending
            .subscribe()
            .wait_for(|pending| *pending == 0)
            .await;
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
            let (inner, now) = (&self.inner, clock::now());
            let deadline = now + timeout;
            match inner.give_back(stake, now, deadline).await? {
                (GaveBack::Done, _) => Ok(Released::Done),
                (GaveBack::NotHeld { .. }, from) => {
                    inner.vouch(Some(from), deadline).await?;
                    Ok(Released::NotHeld)
                }
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

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.inner.renew(batch, timeout, useful))
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
