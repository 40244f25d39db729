//! The parts that all requests of a backend share: the choice of the node for a key, and the check that its answer
//! counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::cluster::{Cluster, Redirect};
use super::connection::{Link, Live, Target};
use super::pubsub::messages::{CONTROL, channel};
use super::pubsub::topics::Topics;
use super::scripting::{self, outcomes::Dated};
use crate::backend::kit::wanted::Wanted;
use crate::backend::opening::Opening;
use crate::backend::{Fault, Reply};
use crate::observe::metrics::logged;
use crate::values::{Count, Key, Kind, Moment, StoreError, clock, rare};

/// The node or nodes that have the keys.
pub(super) enum Nodes {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// A connection on which to acquire.
pub(crate) struct AcquireRoute {
    pub(super) live: Live,
    /// The time at which the permit was given.
    pub(super) sent_at: Moment,
    /// A permit of that connection. `None` once the request is over, while another request is made for the same lock.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// Whether the request was refused as too late.
    was_late: bool,
}

impl AcquireRoute {
    /// Notes the server's time. Returns what was done, or `None` if the request is to be sent once more.
    ///
    /// The second attempt follows a first one that was refused as too late: the server's clock was not known, or has jumped.
    pub(super) fn settle<T>(&mut self, reply: Dated<T>) -> Result<Option<T>, Fault> {
        self.live.clock().saw(reply.time, self.sent_at);
        if reply.done.is_none() {
            if std::mem::replace(&mut self.was_late, true) {
                return Err(Fault::too_late());
            }
            self.sent_at = clock::now();
        }
        Ok(reply.done)
    }
}

impl Nodes {
    /// Returns the connection that is open at this moment, if there can be only one.
    pub(super) fn live(&self) -> Option<Live> {
        match self {
            Nodes::One(link) => link.live(),
            Nodes::Cluster(_) => None,
        }
    }

    /// Returns `true` if a script must have keys of one slot only.
    pub(super) fn keeps_to_slots(&self) -> bool {
        match self {
            Nodes::One(link) => link.keeps_to_slots(),
            Nodes::Cluster(_) => true,
        }
    }
}

/// The parts that the requests of a backend and their compensations share. The supervisors do not hold it.
pub(super) struct Router {
    pub(super) target: Arc<Target>,
    pub(super) call_timeout: Duration,
    /// The kinds whose rights were checked: a bit for each.
    pub(super) rights_of: AtomicU8,
    /// Whether there is no waiting list: the server has refused it, or it is a node of a quorum, at which nobody waits alone.
    has_no_list: AtomicBool,
    pub(super) wanted: Wanted,
    pub(super) handle: Handle,
    /// Whether a body that blocks a worker of the runtime leaves another one to the watchdog.
    pub(super) has_two_workers: bool,
    pub(super) nodes: Nodes,
    pub(super) topics: Arc<Topics>,
    /// The compensations that are under way.
    pub(super) pending: Arc<Count>,
    /// The tasks of the connections end when this becomes true or is gone.
    pub(super) closed: watch::Sender<bool>,
}

impl Router {
    pub(super) fn new(
        target: Arc<Target>,
        opening: &Opening,
        nodes: Nodes,
        topics: Arc<Topics>,
        closed: watch::Sender<bool>,
    ) -> Arc<Router> {
        Arc::new(Router {
            target,
            call_timeout: opening.options.call_timeout,
            rights_of: AtomicU8::new(0),
            has_no_list: AtomicBool::new(opening.uptime.is_some()),
            wanted: Wanted::default(),
            handle: opening.runtime.clone(),
            has_two_workers: opening.runtime.metrics().num_workers() > 1,
            nodes,
            topics,
            pending: Arc::default(),
            closed,
        })
    }

    /// Returns `true` if all keys are at one node.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.nodes, Nodes::One(_))
    }

    /// Returns `true` if processes that wait for the lock are on a waiting list. In a cluster, the list could be at
    /// another node than the lock while their slot moves.
    pub(super) fn keeps_list(&self, key: &Key) -> bool {
        key.kind().is_mutex() && self.is_alone() && !self.has_no_list.load(Ordering::Relaxed)
    }

    /// Notes that the server has refused the list, for a reason that does not concern other requests.
    pub(super) fn refuses_list(&self, why: &StoreError) {
        if !self.has_no_list.swap(true, Ordering::Relaxed) {
            logged!(
                info,
                reason = %why,
                "the waiting list of locks cannot be used: all waiting processes ask again at each release"
            );
        }
    }

    /// Returns how many of the listeners at the key's channel are other processes, and notes that they want the key.
    pub(super) fn note_others(&self, key: &Key, listeners: u64) -> u64 {
        let own = self.topics.is_open(&channel(key));
        let others = listeners.saturating_sub(u64::from(own));
        if others > 0 {
            self.wanted.note(key, others);
        }
        others
    }

    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns the connection to the node that has the key, waiting for it until `deadline`, and the current time,
    /// which is `now` if there was a connection at once.
    pub(super) async fn route(
        &self,
        key: &Key,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        match &self.nodes {
            Nodes::One(link) => link.get(now, deadline).await,
            Nodes::Cluster(cluster) => rare(cluster.route(key.slot(), now, deadline)).await,
        }
    }

    /// Like [`route`](Router::route), for a renewal. It also goes on a connection that is silent: the answer may be as late
    /// as that of the sign of life, and has to come within the lease.
    pub(super) async fn route_renewal(
        &self,
        key: &Key,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        let silent = match &self.nodes {
            Nodes::One(link) => link.silent(),
            Nodes::Cluster(cluster) => cluster.silent(key.slot()),
        };
        match silent {
            Some(silent) => Ok((silent, now)),
            None => self.route(key, now, deadline).await,
        }
    }

    /// Resolves once the answer to a request on this connection need not be waited for: another connection leads to the
    /// node, or the key is known to be at another node.
    pub(super) async fn leads_elsewhere(&self, live: &Live, key: &Key) {
        let reassigned = async {
            match &self.nodes {
                // While a slot is being moved, its owner is not the node that was asked.
                Nodes::Cluster(cluster) if !live.asking => {
                    cluster.reassigned(key.slot(), live).await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = live.replaced() => {}
            () = reassigned => {}
        }
    }

    /// Returns the redirect if a node of a cluster refused because it does not have the key, so that nothing was
    /// executed.
    pub(super) fn redirect<T>(&self, answer: &Result<T, Fault>) -> Option<Redirect> {
        match (&self.nodes, answer) {
            (Nodes::Cluster(_), Err(fault)) => Redirect::of(fault),
            _ => None,
        }
    }

    /// Returns the connection to ask instead of `from`, and the current time: the repeated request counts as a new one.
    pub(super) async fn follow(
        &self,
        redirect: Redirect,
        from: &Live,
        key: &Key,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        let redirect = match key.kind() {
            // Only the script knows the timeout keys of other readers. At a node where they have not arrived, those
            // readers would count as dead.
            Kind::Read | Kind::Write => redirect.without_asking(),
            _ => redirect,
        };
        match &self.nodes {
            Nodes::One(link) => link.get(clock::now(), deadline).await,
            Nodes::Cluster(cluster) => {
                rare(cluster.follow(redirect, from, key.slot(), deadline)).await
            }
        }
    }

    /// Like [`route`](Router::route), for a request that acquires, with a permit of that connection. The wait for the
    /// permit does not count as part of the lease.
    pub(super) async fn route_acquire(
        &self,
        key: &Key,
        now: Moment,
        deadline: Moment,
    ) -> Result<AcquireRoute, Fault> {
        let routed = self.route(key, now, deadline).await?;
        self.with_permit(routed, key, deadline).await
    }

    /// Like [`follow`](Router::follow), for a request that acquires. First gives back the permit of `from`.
    pub(super) async fn follow_acquire(
        &self,
        redirect: Redirect,
        from: AcquireRoute,
        key: &Key,
        deadline: Moment,
    ) -> Result<AcquireRoute, Fault> {
        drop(from.permit);
        let routed = self.follow(redirect, &from.live, key, deadline).await?;
        let at = self.with_permit(routed, key, deadline).await?;
        let was_late = from.was_late;
        Ok(AcquireRoute { was_late, ..at })
    }

    async fn with_permit(
        &self,
        routed: (Live, Moment),
        key: &Key,
        deadline: Moment,
    ) -> Result<AcquireRoute, Fault> {
        let (live, now) = routed;
        match live.permit(now, deadline).await? {
            Some((permit, sent_at)) => Ok(AcquireRoute {
                live,
                sent_at,
                permit: Some(permit),
                was_late: false,
            }),
            // The connection was given up meanwhile.
            None => rare(self.route_acquire(key, clock::now(), deadline)).await,
        }
    }

    /// Sends a script to the node that has the key.
    pub(super) async fn call<S: scripting::Script>(
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
            let Some(redirect) = self.redirect(&answer) else {
                return answer;
            };
            (live, now) = self.follow(redirect, &live, key, deadline).await?;
        }
    }

    /// Publishes the messages that a script could not publish. They are sent in the background and only once, because
    /// messages are hints.
    pub(super) fn publish_all(&self, messages: Vec<(String, String)>) {
        for (channel, payload) in messages {
            let everywhere = channel == CONTROL;
            let published: Reply<'static, ()> = match &self.nodes {
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
                    logged!(debug, reason = %fault, "a release could not be published");
                }
            });
        }
    }

    /// Checks with the sentinels, if there are any, that an answer comes from the master. An answer that ends a hold
    /// must: a master that was deposed, or restarted empty, does not have the hold. If no sentinel answers, the node's
    /// own answer counts. The sentinels have time to answer, even if the node's answer came at the last moment.
    pub(super) async fn vouch(&self, from: Option<Live>, deadline: Moment) -> Result<(), Fault> {
        let Some(sentinels) = self.target.sentinels() else {
            return Ok(());
        };
        let Nodes::One(link) = &self.nodes else {
            return Ok(());
        };
        let options = self.target.dial_options().clone();
        let least = self.call_timeout / 4;
        let asking = sentinels.clone().master(options, deadline, least);
        // `None` if no sentinel answers.
        let asked = self.handle.spawn(asking).await.ok().and_then(Result::ok);
        let is_master = from.zip(link.live()).is_some_and(|(from, live)| {
            from.is_one_with(&live) && asked.is_none_or(|master| from.master() == Some(&master))
        });
        if is_master {
            return Ok(());
        }
        link.suspect();
        Err(Fault::unknown(
            "a node that may not be the master any more does not know the holder",
        ))
    }
}
