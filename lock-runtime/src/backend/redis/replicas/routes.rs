//! The choice of the server whose replicas are asked about a key: the only server, or the node of a cluster that has
//! the key.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::wait_connection::WaitCommon;
use super::wait_queue::{AskedReplicas, WaitQueue};
use crate::backend::redis::cluster::{Cluster, ClusterNode};
use crate::backend::redis::connection::opened::CONNECT;
use crate::backend::redis::router::{Nodes, Router};
use crate::backend::redis::sentinel::Address;
use crate::backend::{Fault, Renewal};
use crate::sync::Mutex;
use crate::values::{Key, Moment, Replicas, clock};

pub(super) enum Routes {
    One(Arc<WaitQueue>),
    Cluster(NodeQueues),
}

/// The connections to each node of a cluster, made when they are first needed.
pub(super) struct NodeQueues {
    cluster: Arc<Cluster>,
    common: Arc<WaitCommon>,
    handle: Handle,
    closed: watch::Receiver<bool>,
    started: Arc<Mutex<HashMap<Address, Arc<WaitQueue>>>>,
}

impl NodeQueues {
    /// Returns the connections to that node. They end when the node leaves the cluster.
    fn to(&self, node: &ClusterNode) -> Arc<WaitQueue> {
        let start = || {
            let (started, address) = (self.started.clone(), node.address.clone());
            let mut dismissed = node.dismissed.subscribe();
            self.handle.spawn(async move {
                // An error means that the cluster is gone, and the backend with it.
                let _ = dismissed.wait_for(|dismissed| *dismissed).await;
                started.lock().remove(&address);
            });
            let target = Arc::new(self.cluster.target(&node.address));
            WaitQueue::start(target, &self.common, &self.handle, &self.closed)
        };
        let mut started = self.started.lock();
        let wait_queue = started.entry(node.address.clone()).or_insert_with(start);
        wait_queue.clone()
    }
}

impl Routes {
    pub(super) fn of(router: &Router, replicas: Replicas) -> Routes {
        let common = |clustered| WaitCommon::new(replicas, router.call_timeout, clustered);
        let (handle, closed) = (router.handle.clone(), router.closed.subscribe());
        match &router.nodes {
            Nodes::One(_) => {
                let target = router.target.clone();
                Routes::One(WaitQueue::start(target, &common(false), &handle, &closed))
            }
            Nodes::Cluster(cluster) => Routes::Cluster(NodeQueues {
                cluster: cluster.clone(),
                common: common(true),
                handle,
                closed,
                started: Arc::default(),
            }),
        }
    }

    /// Finds the errors that would prevent `WAIT`. If there are several servers, it is enough that one can be asked and
    /// none refuses.
    pub(super) async fn try_all(&self) -> Result<(), Fault> {
        let wait_queue = match self {
            Routes::One(wait_queue) => vec![wait_queue.clone()],
            Routes::Cluster(queues) => {
                let masters = queues.cluster.masters();
                masters.iter().map(|node| queues.to(node)).collect()
            }
        };
        let deadline = clock::now() + CONNECT;
        let asked: Vec<_> = wait_queue
            .iter()
            .map(|wait_queue| wait_queue.ask(Vec::new(), deadline))
            .collect();
        let (mut there, mut away) = (false, None);
        for asked in asked {
            match asked.answer().await {
                Ok(()) => there = true,
                Err(fault) if fault.is_passing() => away = Some(fault),
                Err(fault) => return Err(fault),
            }
        }
        match away {
            Some(fault) if !there => Err(fault),
            _ => Ok(()),
        }
    }

    /// Asks about holds that are all at `key`'s server.
    ///
    /// In a cluster, that is the node that has the slot now, as far as this process knows. It need not be the node that
    /// granted the lock. If it is another node, it has the hold with all of its keys, or refuses the request, or does
    /// not have the hold; in the last two cases nothing is confirmed. A node to which the slot is only being moved is
    /// not asked: if the slot's owner fails over, the keys on that node are lost to all others, however many of its
    /// replicas have them.
    pub(super) fn ask(
        &self,
        key: &Key,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> Result<AskedReplicas, Fault> {
        let wait_queue = match self {
            Routes::One(wait_queue) => Some(wait_queue.clone()),
            Routes::Cluster(queues) => {
                let owner = queues.cluster.owner(key.slot());
                owner.map(|node| queues.to(&node))
            }
        };
        let no_owner = || Fault::too_few("no node is known to have the lock's slot");
        Ok(wait_queue.ok_or_else(no_owner)?.ask(holds, deadline))
    }
}
