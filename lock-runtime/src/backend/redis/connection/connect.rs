//! Opens a backend: makes and checks the first connection, and starts the tasks that keep all connections alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::{Check, Opened, Supervisor, Target};
use crate::backend::Fault;
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::opening::Opening;
use crate::backend::redis::cluster::{Cluster, Seeds, Subscriptions};
use crate::backend::redis::pubsub::subscribe::{FirstTry, Subscriber};
use crate::backend::redis::pubsub::topics::Topics;
use crate::backend::redis::router::Nodes;
use crate::backend::redis::{Inner, RedisBackend, sentinel};
use crate::values::{ClusterChannels, LockError, clock};

/// Connecting and checking, all in all.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

impl RedisBackend {
    /// Connects on the manager's runtime, where the backend's tasks live, and checks the server. With `lazy`, only starts to
    /// do so.
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
        let crowd_from = opening.options.crowd_from;
        let check = Check {
            opening: opening.clone(),
            channels: ClusterChannels::Classic,
            slot: None,
        };
        let (first, check) = if lazy {
            (None, check)
        } else {
            let (server, clock) = (target.clone(), clock.clone());
            // On the manager's runtime, for the connection is driven by a task where it was opened.
            let opening = handle.spawn(async move {
                let opened = Opened::checked(&server, &check, &clock).await?;
                Ok::<_, LockError>((opened, check))
            });
            let (opened, check) = in_time(opening, target.shown()).await?;
            (Some(opened), check)
        };

        let closed = watch::Sender::new(false);
        let checked = first.as_ref().map(|opened| opened.master.clone());
        let supervisor = Supervisor {
            target: target.clone(),
            check: Arc::new(check),
            checked,
            clock,
            suspicion: Arc::new(Notify::new()),
            answers: Arc::default(),
            standing: Arc::default(),
            closed: closed.subscribe(),
            member: None,
        };
        let link = supervisor.start(first);
        let topics = Arc::new(Topics::default());
        let (tried, mut first_try) = watch::channel(FirstTry::UnderWay);
        let subscriber = Subscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events,
            timeout,
            tried,
            closed: closed.subscribe(),
        };
        handle.spawn(subscriber.run());
        if let Some(sentinels) = target.sentinels() {
            let (sentinels, options) = (sentinels.clone(), target.dial_options().clone());
            let closed = closed.subscribe();
            handle.spawn(sentinel::watch(sentinels, options, timeout, closed));
        }
        if !lazy {
            // Subscribe first, so that a forced release right after the first acquire is heard. The connection and
            // SUBSCRIBE each have one timeout. Locks do not depend on it, so only a failure that would repeat is an
            // error.
            let tried = first_try.wait_for(|tried| !matches!(tried, FirstTry::UnderWay));
            if let Ok(Ok(tried)) = tokio::time::timeout(timeout * 2, tried).await
                && let FirstTry::NoPubSub(fault) = &*tried
            {
                return Err(fault.clone().into_error(target.shown()));
            }
        }
        let inner = Arc::new(Inner {
            target,
            call_timeout: timeout,
            crowd_from,
            rights_of: AtomicU8::new(0),
            list_is_refused: AtomicBool::new(false),
            handle,
            nodes: Nodes::One(link),
            topics,
            pending: Arc::default(),
            closed,
        });
        Ok(Arc::new(RedisBackend { inner }))
    }

    async fn connect_to_cluster(
        target: Target,
        seeds: Arc<Seeds>,
        opening: Opening,
    ) -> Result<Arc<RedisBackend>, LockError> {
        let closed = watch::Sender::new(false);
        let (handle, events) = (opening.runtime.clone(), opening.events.clone());
        let (timeout, lazy) = (opening.options.call_timeout, opening.options.lazy);
        let crowd_from = opening.options.crowd_from;
        let cluster = Cluster::new(seeds, &target, opening, closed.subscribe());
        if !lazy {
            // On the manager's runtime, as above.
            let until = clock::now() + CONNECT.mul_f64(0.9);
            let opening = handle.spawn(cluster.clone().connect(until));
            in_time(opening, target.shown()).await?;
        }
        handle.spawn(cluster.clone().keep_table());
        let topics = Arc::new(Topics::default());
        let (tried, mut first_try) = watch::channel(false);
        let subscriptions = Subscriptions {
            cluster: cluster.clone(),
            topics: topics.clone(),
            events,
            tried,
            closed: closed.subscribe(),
        };
        handle.spawn(subscriptions.run());
        if !lazy {
            let tried = first_try.wait_for(|tried| *tried);
            let _ = tokio::time::timeout(timeout, tried).await;
        }
        let inner = Arc::new(Inner {
            target: Arc::new(target),
            call_timeout: timeout,
            crowd_from,
            rights_of: AtomicU8::new(0),
            list_is_refused: AtomicBool::new(false),
            handle,
            nodes: Nodes::Cluster(cluster),
            topics,
            pending: Arc::default(),
            closed,
        });
        Ok(Arc::new(RedisBackend { inner }))
    }
}

/// Waits for a task on the manager's runtime that opens a connection, within the time limit.
async fn in_time<T>(
    opening: JoinHandle<Result<T, LockError>>,
    server: &str,
) -> Result<T, LockError> {
    let stop = opening.abort_handle();
    match tokio::time::timeout(CONNECT, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => Err(Fault::runtime_ended().into_error(server)),
        Err(_) => {
            stop.abort();
            let fault = Fault::not_done(format!("no answer in {CONNECT:?}"));
            Err(fault.into_error(server))
        }
    }
}
