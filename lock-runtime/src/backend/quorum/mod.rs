//! A quorum: several independent stores that keep one mutex together, as in Redis's Redlock. A lock is held by the client that
//! has it at a majority of the nodes, so it outlives the loss of a minority of them.
//!
//! | file | concept |
//! |---|---|
//! | `majority` | the counting of answers. Pure |
//! | `node` | one store; when it counts as down, and as silent |
//! | `request`, `vote` | a request to every node; an acquisition, granted by a majority or undone at all nodes |
//! | `handover` | a hold that changes hands at every node |
//! | `broadcast` | release, renew, inspect, force: asked of all, answered by a majority |
//! | `health` | a check of which nodes answer, and count |
//! | `listen` | the wake-up of waiters by the messages of the nodes |
//!
//! Every node is asked in a task of its own, so that a slow one delays nobody and finishes what it began when the
//! majority has answered. There are no fencing tokens: nodes count by themselves, and a majority of their counters is
//! no counter.

pub(crate) mod connect;
mod handover;
mod health;
mod listen;
mod node;

pub(crate) mod broadcast;
pub(crate) mod majority;
pub(crate) mod request;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod vote;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::listen::QuorumListener;
pub(crate) use self::node::VotingNode;
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, Fault, Granted, HandedOver, HoldRef,
    Listen, Released, Renewal, Renewed, Reply, Snapshot, StoreTraits, Within,
};
use crate::backend::quorum::request::NodeRequest;
use crate::backend::quorum::vote::{Grants, Polled};
use crate::sync::Mutex;
use crate::values::{Backoff, Checkup, Count, HolderId, Key, Moment, StoreKind, Ttl};

/// The largest number of releases that are repeated in the background at once. Beyond it, holds that are left at nodes
/// that are away end with their leases.
const MOST_ERRANDS: usize = 1024;
/// The pauses between two tries of a release at one node.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Locks at a majority of several stores. Its tasks that ask the nodes share it.
pub(crate) struct QuorumBackend {
    nodes: Box<[VotingNode]>,
    /// The longest lease: no lease that a node granted, and forgot by its restart, lasts longer after the restart.
    longest: Ttl,
    handle: Handle,
    /// Acquisitions that have been decided without the grants of all nodes.
    trailing: Mutex<HashMap<HolderId, Trailing>>,
    /// Acquisitions in a row that got some votes and no majority.
    splits: AtomicU32,
    errands: Semaphore,
    /// Releases at single nodes that are under way.
    pending: Arc<Count>,
}

/// An acquisition, or a hand-over, that has been decided without the grants of all nodes.
struct Trailing {
    grants: Arc<Grants>,
    /// Until then, a node that has not granted it may undo it: its answer was lost, or is still to come. So a renewal that
    /// it confirms is worth nothing.
    undone_until: Moment,
}

impl Trailing {
    fn is_over(&self) -> bool {
        // The tasks of the nodes share the grants, which are kept once for each request.
        let kept = self.grants.requests.len();
        self.undone_until.has_passed() && Arc::strong_count(&self.grants) <= kept
    }
}

/// Waits for the next answer of a node, until that time at most if there is one.
async fn next_by<T>(until: Option<Moment>, next: impl Future<Output = Option<T>>) -> Option<T> {
    match until {
        None => next.await,
        Some(until) => tokio::time::timeout_at(until.tick(), next).await.ok()?,
    }
}

impl QuorumBackend {
    /// Returns a quorum of `nodes`, an odd number of stores that share nothing. Its tasks run on the runtime of
    /// `handle`.
    pub(crate) fn new(nodes: Vec<VotingNode>, longest: Ttl, handle: Handle) -> Arc<QuorumBackend> {
        Arc::new(QuorumBackend {
            nodes: nodes.into(),
            longest,
            handle,
            trailing: Mutex::default(),
            splits: AtomicU32::new(0),
            errands: Semaphore::new(MOST_ERRANDS),
            pending: Arc::default(),
        })
    }

    /// Remembers that some nodes have not granted it, which may undo it until then.
    fn goes_on(&self, holder: HolderId, grants: &Arc<Grants>, undone_until: Moment) {
        let mut trailing = self.trailing.lock();
        if trailing.len() >= 64 && trailing.len().is_power_of_two() {
            trailing.retain(|_, of| !of.is_over());
        }
        let grants = grants.clone();
        let of = Trailing {
            grants,
            undone_until,
        };
        trailing.insert(holder, of);
    }

    /// Takes back what a node confirms of holds that it may be undoing.
    fn doubt(&self, node: usize, batch: &[Renewal], answers: &mut [Renewed]) {
        let trailing = self.trailing.lock();
        for (renewal, answer) in batch.iter().zip(answers) {
            let of = trailing.get(&renewal.holder);
            let may_undo = |of: &Trailing| !of.undone_until.has_passed() && !of.grants.has(node);
            if *answer == Renewed::Held && of.is_some_and(may_undo) {
                *answer = Renewed::Unknown;
            }
        }
    }

    /// Withdraws what nodes may still grant to this holder. This comes before anything else is sent for the holder,
    /// because a late grant must not stay behind.
    fn cut_off(&self, holder: HolderId) {
        let trailing = self.trailing.lock().remove(&holder);
        if let Some(of) = trailing {
            of.grants.withdraw();
        }
    }

    /// Releases at one node until it answers or the lease is over for certain, in the background.
    fn errand(self: &Arc<QuorumBackend>, node: usize, request: NodeRequest) -> JoinHandle<()> {
        let pending = self.pending.enter();
        let quorum = self.clone();
        self.handle.spawn(async move {
            quorum.give_back(node, &request).await;
            drop(pending);
        })
    }

    async fn give_back(&self, node: usize, request: &NodeRequest) {
        let backend = &self.nodes[node].backend;
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut permit = None;
        loop {
            match backend.release(request.hold_ref(), request.timeout).await {
                Err(fault) if fault.is_passing() => {}
                Ok(_) | Err(_) => return,
            }
            permit = permit.or_else(|| self.errands.try_acquire().ok());
            if permit.is_none() || !request.over().leaves_time_after(pauses.pause()).await {
                return;
            }
        }
    }

    /// Returns the pause after an attempt that took votes and had to give them back. Clients that split the votes all
    /// try again at random times, so that one of them finds the nodes free. The pause grows with every split in a row.
    fn split_pause(&self, key: &Key) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(5);
        const LONGEST: Duration = Duration::from_millis(100);
        let splits = self.splits.fetch_add(1, Ordering::Relaxed);
        let least = (self.round_trip(key) * 4).max(SHORTEST);
        Backoff::new(least, LONGEST.max(least))
            .after(splits)
            .pause()
    }

    /// Returns the round trip of the slowest node that a majority needs.
    fn round_trip(&self, key: &Key) -> Duration {
        let mut trips: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.backend.round_trip(key))
            .collect();
        trips.sort();
        trips[self.nodes.len() / 2]
    }

    /// Refuses a lease that is longer than the quorum's longest lease. It could outlive the time for which a restarted
    /// node counts as down, and would not be safe.
    fn check_term(&self, ttl: Ttl) -> Result<(), Fault> {
        if ttl > self.longest {
            return Err(Fault::Impossible(format!(
                "a lease of {:?} is longer than the quorum's longest lease, {:?}",
                ttl.duration(),
                self.longest.duration()
            )));
        }
        Ok(())
    }
}

impl Backend for Arc<QuorumBackend> {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            match vote::acquire(self, vec![NodeRequest::of(&request)]).await? {
                Polled::Won { sent_at } => {
                    let token = None;
                    Ok(Acquired::Granted(Granted::leased(token, sent_at), None))
                }
                Polled::Busy { left, .. } => Ok(Acquired::busy(left)),
            }
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(async move {
            if requests.is_empty() {
                return Ok(AcquiredAll::Granted(Vec::new()));
            }
            let asked = requests.iter().map(NodeRequest::of).collect();
            match vote::acquire(self, asked).await? {
                Polled::Won { sent_at } => {
                    let token = None;
                    let granted = requests.iter().map(|_| Granted::leased(token, sent_at));
                    Ok(AcquiredAll::Granted(granted.collect()))
                }
                Polled::Busy { apart: true, .. } => Ok(AcquiredAll::Apart),
                Polled::Busy { .. } => Ok(AcquiredAll::Busy),
            }
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        Box::pin(broadcast::release(
            self,
            NodeRequest::to_release(hold_ref, timeout, self.longest),
        ))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        Box::pin(broadcast::renew(self, batch, within))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(broadcast::force_release(self, key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        Box::pin(broadcast::inspect(self, key, timeout))
    }

    fn store(&self) -> StoreKind {
        StoreKind::Quorum
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        _: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(handover::hand_over(self, from, NodeRequest::of(&to)))
    }

    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        Box::pin(health::ask(self, timeout))
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        let listeners = self.nodes.iter().map(|node| node.backend.listen(key));
        Box::new(QuorumListener::new(listeners.collect()))
    }

    fn traits(&self) -> StoreTraits {
        let nodes = self.nodes.iter();
        let batches = nodes.map(|node| node.backend.traits().renew_batch);
        StoreTraits {
            renew_batch: batches.min().unwrap_or(1),
            divided: true,
            hands_over: true,
            ..StoreTraits::default()
        }
    }

    fn wanted_by(&self, key: &Key) -> u64 {
        let nodes = self.nodes.iter();
        let seen = nodes.map(|node| node.backend.wanted_by(key));
        seen.max().unwrap_or(0)
    }

    fn round_trip(&self, key: &Key) -> Duration {
        QuorumBackend::round_trip(self, key)
    }

    fn drained(&self) -> Boxed<'_> {
        Box::pin(async {
            self.pending.zero().await;
            for node in &self.nodes {
                node.backend.drained().await;
            }
        })
    }

    fn close(&self) {
        for node in &self.nodes {
            node.backend.close();
        }
    }
}
