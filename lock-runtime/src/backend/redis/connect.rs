//! Opens a backend: makes and checks the first connection, and starts the tasks that keep all connections alive.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster::{Cluster, Seeds};
use super::connection::opened::CONNECT;
use super::connection::{Check, Link, Opened, Supervisor, Target};
use super::pubsub::subscriber::{FirstTry, Subscriber, SubscriberNote};
use super::pubsub::topics::Topics;
use super::replicas::ReplicaConfirmations;
use super::router::{Nodes, Router};
use super::{RedisBackend, sentinel};
use crate::backend::Fault;
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::opening::Opening;
use crate::values::{ClusterChannels, LockError, clock};

impl RedisBackend {
    /// Connects on the manager's runtime, which runs the backend's tasks, and checks the server. With `lazy`, only
    /// starts to connect.
    pub(crate) async fn connect(
        target: Target,
        opening: Opening,
    ) -> Result<Arc<RedisBackend>, LockError> {
        let (target, topics) = (Arc::new(target), Arc::<Topics>::default());
        let closed = watch::Sender::new(false);
        let (tried, mut first_try) = watch::channel(FirstTry::UnderWay);
        let begin = Begin {
            target: &target,
            opening: &opening,
            topics: &topics,
            closed: closed.subscribe(),
            tried,
        };
        let timeout = opening.options.call_timeout;
        // At a single server, the connection and SUBSCRIBE each have one timeout.
        let (nodes, within) = match target.seeds() {
            None => (Nodes::One(begin.server().await?), timeout * 2),
            Some(seeds) => (Nodes::Cluster(begin.cluster(seeds).await?), timeout),
        };
        if !opening.options.lazy {
            // Subscribe first, so that a forced release right after the first acquire is received. Locks do not depend on
            // the subscription, so only a failure that would repeat is an error.
            let tried = first_try.wait_for(|tried| !matches!(tried, FirstTry::UnderWay));
            if let Ok(Ok(tried)) = tokio::time::timeout(within, tried).await
                && let FirstTry::NoPubSub(fault) = &*tried
            {
                return Err(fault.clone().into_error(target.shown()));
            }
        }
        let router = Router::new(target, &opening, nodes, topics, closed);
        let replicas = if opening.options.replicas.is_on() {
            Some(ReplicaConfirmations::connect(&router, &opening).await?)
        } else {
            None
        };
        Ok(Arc::new(RedisBackend { router, replicas }))
    }
}

/// What the first connections are opened with.
struct Begin<'a> {
    target: &'a Arc<Target>,
    opening: &'a Opening,
    topics: &'a Arc<Topics>,
    closed: watch::Receiver<bool>,
    tried: watch::Sender<FirstTry>,
}

impl Begin<'_> {
    async fn server(self) -> Result<Arc<Link>, LockError> {
        let (target, opening) = (self.target, self.opening);
        let check = Arc::new(Check {
            opening: opening.clone(),
            clock: ServerClock::default(),
            channels: ClusterChannels::Classic,
            slot: None,
        });
        let (server, same) = (target.clone(), check.clone());
        let checked = async move { Opened::checked(&server, &same).await };
        let first = self.first(checked).await?;
        let closed = || self.closed.clone();
        let link = Supervisor::start(target.clone(), check, closed(), None, first);
        let (tried, suspected) = (self.tried, link.clone());
        let subscriber = Subscriber {
            target: target.clone(),
            topics: self.topics.clone(),
            events: opening.events.clone(),
            channels: ClusterChannels::Classic,
            timeout: opening.options.call_timeout,
            on_note: Box::new(move |note| {
                let outcome = match note {
                    SubscriberNote::Up => FirstTry::Over,
                    SubscriberNote::Down(outcome) => {
                        // It may have found that the server is no master any more.
                        suspected.suspect();
                        outcome
                    }
                    // A server that is not a node of a cluster has all channels.
                    SubscriberNote::Refused(_) => return,
                };
                tried.send_if_modified(|tried| {
                    let is_first = matches!(tried, FirstTry::UnderWay);
                    if is_first {
                        *tried = outcome;
                    }
                    is_first
                });
            }),
        };
        opening.runtime.spawn(subscriber.run_alone(closed()));
        if let Some(sentinels) = target.sentinels() {
            let (sentinels, options) = (sentinels.clone(), target.dial_options().clone());
            let timeout = opening.options.call_timeout;
            let watching = sentinel::watch(sentinels, options, timeout, closed());
            opening.runtime.spawn(watching);
        }
        Ok(link)
    }

    async fn cluster(self, seeds: &Arc<Seeds>) -> Result<Arc<Cluster>, LockError> {
        let (target, opening) = (self.target, self.opening);
        let cluster = Cluster::new(seeds.clone(), target, opening.clone(), self.closed.clone());
        let until = clock::now() + CONNECT.mul_f64(0.9);
        self.first(cluster.clone().connect(until)).await?;
        opening.runtime.spawn(cluster.clone().keep_table());
        let subscribing = cluster
            .clone()
            .keep_subscribed(self.topics.clone(), self.tried);
        opening.runtime.spawn(subscribing);
        Ok(cluster)
    }

    /// Opens the first connection, unless the options are `lazy`. It is opened on the manager's runtime, because its task
    /// runs on the runtime where it was opened. The set ends the attempt when it is dropped: at the time limit, or with a
    /// caller that no longer waits.
    async fn first<T: Send + 'static>(
        &self,
        connecting: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Result<Option<T>, LockError> {
        if self.opening.options.lazy {
            return Ok(None);
        }
        let mut attempt = JoinSet::new();
        attempt.spawn_on(connecting, &self.opening.runtime);
        let fault = match tokio::time::timeout(CONNECT, attempt.join_next()).await {
            Ok(Some(Ok(opened))) => return opened.map(Some),
            Ok(_) => Fault::runtime_ended(),
            Err(_) => Fault::not_done(format!("no answer in {CONNECT:?}")),
        };
        Err(fault.into_error(self.target.shown()))
    }
}
