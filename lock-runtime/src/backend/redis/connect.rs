//! Opens a backend: makes and checks the first connection, and starts the tasks that keep all connections alive.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster::{Cluster, Seeds, Subscriptions};
use super::connection::opened::CONNECT;
use super::connection::{Check, Opened, Supervisor, Target};
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
        if let Some(seeds) = target.seeds() {
            let seeds = seeds.clone();
            return RedisBackend::connect_to_cluster(target, seeds, opening).await;
        }
        let target = Arc::new(target);
        let (handle, clock) = (opening.runtime.clone(), Arc::new(ServerClock::default()));
        let (timeout, lazy) = (opening.options.call_timeout, opening.options.lazy);
        let check = Check {
            opening: opening.clone(),
            channels: ClusterChannels::Classic,
            slot: None,
        };
        let (first, check) = if lazy {
            (None, check)
        } else {
            let (server, clock) = (target.clone(), clock.clone());
            // The connection is opened on the manager's runtime, because its task runs on the runtime where it was
            // opened.
            let mut connecting = JoinSet::new();
            let checked = async move {
                let opened = Opened::checked(&server, &check, &clock).await?;
                Ok((opened, check))
            };
            connecting.spawn_on(checked, &handle);
            let (opened, check) = in_time(connecting, target.shown()).await?;
            (Some(opened), check)
        };

        let closed = watch::Sender::new(false);
        let link = Supervisor::start(
            target.clone(),
            check,
            clock,
            closed.subscribe(),
            None,
            first,
        );
        let topics = Arc::new(Topics::default());
        let (tried, mut first_try) = watch::channel(FirstTry::UnderWay);
        let subscriber = Subscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
            channels: ClusterChannels::Classic,
            timeout,
            on_note: Box::new(move |note| {
                let outcome = match note {
                    SubscriberNote::Up => FirstTry::Over,
                    SubscriberNote::Down(outcome) => outcome,
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
        handle.spawn(subscriber.run_alone(closed.subscribe()));
        if let Some(sentinels) = target.sentinels() {
            let (sentinels, options) = (sentinels.clone(), target.dial_options().clone());
            let closed = closed.subscribe();
            handle.spawn(sentinel::watch(sentinels, options, timeout, closed));
        }
        if !lazy {
            // Subscribe first, so that a forced release right after the first acquire is received. The connection and
            // SUBSCRIBE each have one timeout. Locks do not depend on the subscription, so only a failure that would
            // repeat is an error.
            let tried = first_try.wait_for(|tried| !matches!(tried, FirstTry::UnderWay));
            if let Ok(Ok(tried)) = tokio::time::timeout(timeout * 2, tried).await
                && let FirstTry::NoPubSub(fault) = &*tried
            {
                return Err(fault.clone().into_error(target.shown()));
            }
        }
        let router = Router::new(target, &opening, Nodes::One(link), topics, closed);
        RedisBackend::around(router, &opening).await
    }

    async fn around(
        router: Arc<Router>,
        opening: &Opening,
    ) -> Result<Arc<RedisBackend>, LockError> {
        let replicas = if opening.options.replicas.is_on() {
            Some(ReplicaConfirmations::connect(&router, opening).await?)
        } else {
            None
        };
        Ok(Arc::new(RedisBackend { router, replicas }))
    }

    async fn connect_to_cluster(
        target: Target,
        seeds: Arc<Seeds>,
        opening: Opening,
    ) -> Result<Arc<RedisBackend>, LockError> {
        let closed = watch::Sender::new(false);
        let handle = opening.runtime.clone();
        let (timeout, lazy) = (opening.options.call_timeout, opening.options.lazy);
        let cluster = Cluster::new(seeds, &target, opening.clone(), closed.subscribe());
        if !lazy {
            // On the manager's runtime, as above.
            let until = clock::now() + CONNECT.mul_f64(0.9);
            let mut connecting = JoinSet::new();
            connecting.spawn_on(cluster.clone().connect(until), &handle);
            in_time(connecting, target.shown()).await?;
        }
        handle.spawn(cluster.clone().keep_table());
        let topics = Arc::new(Topics::default());
        let (tried, mut first_try) = watch::channel(false);
        let subscriptions = Subscriptions {
            cluster: cluster.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
            tried,
            closed: closed.subscribe(),
        };
        handle.spawn(subscriptions.run());
        if !lazy {
            let tried = first_try.wait_for(|tried| *tried);
            let _ = tokio::time::timeout(timeout, tried).await;
        }
        let nodes = Nodes::Cluster(cluster);
        let router = Router::new(Arc::new(target), &opening, nodes, topics, closed);
        RedisBackend::around(router, &opening).await
    }
}

/// Waits for a task on the manager's runtime that opens a connection, within the time limit. The set ends the task when
/// it is dropped: at the limit, or with a caller that no longer waits.
async fn in_time<T: 'static>(
    mut opening: JoinSet<Result<T, LockError>>,
    server: &str,
) -> Result<T, LockError> {
    match tokio::time::timeout(CONNECT, opening.join_next()).await {
        Ok(Some(Ok(opened))) => opened,
        Ok(_) => Err(Fault::runtime_ended().into_error(server)),
        Err(_) => {
            let fault = Fault::not_done(format!("no answer in {CONNECT:?}"));
            Err(fault.into_error(server))
        }
    }
}
