//! Locks that replicas confirm before they are handed out.
//!
//! | file | concept |
//! |---|---|
//! | `routes` | finding the server whose replicas are asked about a key |
//! | `wait_queue` | a few connections to each server for `WAIT` alone, and the requests that share one `WAIT` |
//! | `wait_connection` | one of these connections: one `WAIT` at a time |
//! | `touch` | writing holds once more as they are |
//!
//! `WAIT` blocks its connection, and proves only that replicas have the writes that were sent before it on that
//! connection. But replication is one ordered stream: when the replicas have a write that was made *after* the acquire
//! was answered, they have the acquire. So the connection touches the hold, that is, writes it once more as it is, and
//! waits for that write.
//!
//! This proves something only if the server granted the lock and has forgotten nothing since. Addresses, run ids and
//! generations of connections each miss a case: a name that moved to another node, or a master that was demoted and
//! promoted again. So one script makes the touch only where the hold is: a server that has the hold, and whose replicas
//! have a later write, is the right server. The touch needs no key of its own, which might be missing in a slot that is
//! being moved. And unlike a published message, it is replicated by a node of a cluster, too.
//!
//! For a renewal that proves too little: after a failover, the new master has the hold, too, but with the lease from
//! before the old master renewed it. So the touch of a renewal extends the lease as well.

mod routes;
pub(crate) mod touch;
pub(crate) mod wait_connection;
pub(crate) mod wait_queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use tokio::task::JoinHandle;

use self::wait_connection::WaitCommon;
use self::wait_queue::WaitQueue;
use super::connection::check;
use crate::backend::kit::hosts::Address;
use crate::backend::kit::standing::Standing;
use crate::backend::kit::undo::Undo;
use crate::backend::opening::Opening;
use crate::backend::redis::kinds::acquire::{self, Compensation};
use crate::backend::redis::kinds::acquire_all::acquire_all;
use crate::backend::redis::kinds::release;
use crate::backend::redis::router::{Nodes, Router};
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, Fault, HandedOver, HoldRef, Renewal, Renewed, Reply,
    WithRelease, Within,
};
use crate::observe::metrics::logged;
use crate::sync::Mutex;
use crate::values::{Checkup, LockError, Moment, Ttl, all, clock};

/// The least time that the replicas get, even if the caller's wait is nearly over.
const LEAST: Duration = Duration::from_millis(10);
/// The time for which a caller waits until a lock is given back. A server that answers at all has answered by then;
/// otherwise the release goes on in the background.
const GIVE_BACK: Duration = Duration::from_millis(250);
/// The lease of the lock by which the health is checked. Replicas have a sixth of it to confirm the lock.
const LEASE_OF_CHECK: Duration = Duration::from_secs(12);

/// Has replicas confirm what a backend grants and renews.
pub(super) struct ReplicaConfirmations {
    router: Arc<Router>,
    common: Arc<WaitCommon>,
    /// The connections to the only server, or to the node of a cluster with this address.
    queues: Arc<Mutex<HashMap<Option<Address>, Arc<WaitQueue>>>>,
    opening: Opening,
    connected_at: Moment,
    /// Whether the replicas of each master confirm, by its name.
    standings: Mutex<BTreeMap<String, Standing>>,
}

impl ReplicaConfirmations {
    /// Tries `WAIT`, unless the options are `lazy`.
    pub(super) async fn connect(
        router: &Arc<Router>,
        opening: &Opening,
    ) -> Result<ReplicaConfirmations, LockError> {
        let mut confirmations = ReplicaConfirmations {
            router: router.clone(),
            common: Arc::new(WaitCommon {
                replicas: opening.options.replicas,
                timeout: router.call_timeout,
                clustered: !router.is_alone(),
                connected: AtomicU32::new(0),
                warned: AtomicBool::new(false),
            }),
            queues: Arc::default(),
            opening: opening.clone(),
            connected_at: clock::now(),
            standings: Mutex::default(),
        };
        if !opening.options.lazy {
            let tried = confirmations.try_all().await;
            tried.map_err(|fault| fault.into_error(router.target.shown()))?;
            confirmations.connected_at = clock::now();
        }
        Ok(confirmations)
    }

    /// Returns the health of the masters. A master is healthy only if enough of its replicas confirm a lock.
    pub(super) async fn health(&self, timeout: Duration) -> Checkup {
        let deadline = clock::now() + timeout;
        let mut checkup = self.router.health(timeout).await;
        let answering = || checkup.nodes.iter().filter(|node| node.is_ok());
        let tries = answering().map(|node| -> Reply<'_, ()> {
            let locked = self.can_lock(&node.node, timeout);
            Box::pin(async move {
                let late = |_| Fault::unknown("replicas did not confirm a lock in time");
                let locked = tokio::time::timeout_at(deadline.tick(), locked).await;
                locked.map_err(late)?
            })
        });
        let locked = all(tries.collect()).await;
        let mut standings = self.standings.lock();
        standings.retain(|name, _| checkup.nodes.iter().any(|node| node.node == *name));
        let answering = checkup.nodes.iter_mut().filter(|node| node.is_ok());
        for (node, locked) in answering.zip(locked) {
            let standing = standings.entry(node.node.clone());
            let standing = standing.or_insert_with(|| Standing::answering(self.connected_at));
            let since = standing.note(locked.is_ok()).wall();
            node.since = node.since.max(since);
            node.error = locked.err().map(|fault| fault.to_string());
        }
        checkup
    }

    /// Acquires and releases a lock of its own at the server.
    async fn can_lock(&self, node: &str, timeout: Duration) -> Result<(), Fault> {
        let slot = match &self.router.nodes {
            Nodes::One(_) => None,
            Nodes::Cluster(cluster) => match cluster.table.slot_of(node) {
                Some(slot) => Some(slot),
                // The node has no slots yet.
                None => return Ok(()),
            },
        };
        let key = check::own_key(&self.opening, slot)?;
        let ttl = Ttl::new(LEASE_OF_CHECK, true).map_err(Fault::impossible)?;
        loop {
            let hold_ref = HoldRef::one(&key, self.opening.ids.fresh());
            let request = AcquireRequest::of(hold_ref, ttl, clock::now(), timeout);
            match self.acquire(request).await {
                Ok(Acquired::Granted(..)) => {
                    let with = WithRelease::default();
                    let released = release::release(&self.router, hold_ref, with, timeout);
                    return released.await.map(drop);
                }
                Ok(_) => {
                    return Err(Fault::not_done(
                        "another holder has a lock that was just made",
                    ));
                }
                Err(Fault::Outdated) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Returns the time until which the replicas may confirm a grant.
    fn deadline(&self, request: &AcquireRequest<'_>) -> Moment {
        let now = clock::now();
        let deadline = now + request.ttl.call_timeout(self.common.replicas.within);
        match request.waits {
            Some(rest) => deadline.earlier((request.asked_at + rest).later(now + LEAST)),
            None => deadline,
        }
    }

    /// Waits until the replicas have the granted locks. Gives the locks back if too few replicas have them in time, or
    /// if the caller drops the future.
    async fn confirm(&self, requests: &[AcquireRequest<'_>]) -> Result<(), Fault> {
        let deadlines = requests.iter().map(|request| self.deadline(request));
        let (Some(first), Some(deadline)) = (requests.first(), deadlines.reduce(Moment::earlier))
        else {
            return Ok(());
        };
        let undo = Undo::armed(|| drop(self.give_back(requests)));
        // Locks that were granted together are at one server.
        let holds = requests
            .iter()
            .map(|request| hold(request.hold_ref))
            .collect();
        let confirmed = self.ask(first.hold_ref.key, holds, deadline).await;
        undo.disarm();
        let Err(fault) = confirmed else {
            return Ok(());
        };
        logged!(debug, reason = %fault, "a lock that was granted is given back");
        let _ = tokio::time::timeout(GIVE_BACK, self.give_back(requests)).await;
        Err(match fault {
            // Whatever prevented the answer, the lock was granted and is given back.
            Fault::NotDone(source) | Fault::Unknown(source) => Fault::TooFew(source),
            fault => fault,
        })
    }

    /// Gives granted locks back in the background. The backend closes only after that.
    fn give_back(&self, requests: &[AcquireRequest<'_>]) -> JoinHandle<()> {
        let (router, now) = (&self.router, clock::now());
        let of = |request| Compensation::of(router, request, None, now);
        let compensations: Vec<_> = requests.iter().map(of).collect();
        router.handle.spawn(async move {
            for compensation in compensations {
                compensation.run().await;
            }
        })
    }

    pub(super) async fn acquire(&self, request: AcquireRequest<'_>) -> Result<Acquired, Fault> {
        // Replicas confirm grants, and a message about a reservation is none.
        let request = AcquireRequest {
            looks_for_reservation: false,
            ..request
        };
        let acquired = acquire::acquire(&self.router, &request).await?;
        // There is no await in between. So a caller that drops this future drops it either before the grant is known
        // here, or while the grant is guarded.
        if matches!(acquired, Acquired::Granted(..)) {
            self.confirm(&[request]).await?;
        }
        Ok(acquired)
    }

    pub(super) async fn acquire_all(
        &self,
        requests: &[AcquireRequest<'_>],
    ) -> Result<AcquiredAll, Fault> {
        let acquired = acquire_all(&self.router, requests).await?;
        if matches!(acquired, AcquiredAll::Granted(_)) {
            self.confirm(requests).await?;
        }
        Ok(acquired)
    }

    /// Confirms a hand-over, if it was done.
    pub(super) async fn confirm_hand_over(
        &self,
        to: AcquireRequest<'_>,
        handed_over: HandedOver,
    ) -> Result<HandedOver, Fault> {
        if matches!(handed_over, HandedOver::Done(..)) {
            // The old holder waits for this call. This limit makes sure that it learns of its release in time, whatever
            // the replicas do.
            let half = to.timeout / 2;
            let waits = Some(to.waits.map_or(half, |rest| rest.min(half)));
            let confirmed = self.confirm(&[AcquireRequest { waits, ..to }]).await;
            confirmed.map_err(|fault| match fault {
                // The hand-over was done and undone: the old holder has released the lock, and the new one does not
                // have it.
                Fault::TooFew(_) => fault,
                fault => Fault::unknown(fault.to_string()),
            })?;
        }
        Ok(handed_over)
    }

    /// Extends the leases. The replicas confirm the renewals only if the options ask for that.
    pub(super) async fn renew(
        &self,
        batch: &[Renewal],
        within: Within,
    ) -> Result<Vec<Renewed>, Fault> {
        let mut answers = self.router.renew(batch, within).await?;
        let replicas = &self.common.replicas;
        if !replicas.renewals {
            return Ok(answers);
        }
        // The watchdog cut the timeout to the shortest lease.
        let deadline = clock::now() + replicas.within.min(within.timeout);
        // Each hold is a request of its own, and all are sent at once: a hold that is lost says nothing about the
        // others.
        let asked = batch.iter().zip(&answers).map(|(renewal, answer)| {
            let is_held = *answer == Renewed::Held;
            is_held.then(|| self.ask(&renewal.key, vec![renewal.clone()], deadline))
        });
        let asked: Vec<_> = asked.collect();
        let (mut unconfirmed, mut why) = (0, None);
        for (answer, asked) in answers.iter_mut().zip(asked) {
            if let Some(asked) = asked
                && let Err(fault) = asked.await
            {
                *answer = Renewed::Unknown;
                unconfirmed += 1;
                why = Some(fault);
            }
        }
        if let Some(fault) = why {
            logged!(debug, reason = %fault, unconfirmed, "too few replicas confirmed the renewals");
        }
        Ok(answers)
    }
}

/// Returns the renewal that a wait connection sends for a hold.
fn hold(hold_ref: HoldRef<'_>) -> Renewal {
    Renewal {
        key: Arc::new(hold_ref.key.clone()),
        holder: hold_ref.holder,
        permits: hold_ref.permits,
        ttl: None,
        waits: false,
    }
}
