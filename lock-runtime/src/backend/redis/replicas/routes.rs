//! The choice of the server whose replicas are asked about a key: the only server, or the node of a cluster that has
//! the key.

use std::sync::Arc;

use super::ReplicaConfirmations;
use super::wait_queue::WaitQueue;
use crate::backend::redis::cluster::{Cluster, ClusterNode};
use crate::backend::redis::connection::opened::CONNECT;
use crate::backend::redis::router::Nodes;
use crate::backend::{Fault, Renewal};
use crate::values::{Key, Moment, clock};

impl ReplicaConfirmations {
    /// Returns the connections to the only server, or to that node of a cluster. They are made when they are first needed.
    /// Those to a node end when it leaves the cluster.
    fn queue(&self, of: Option<(&Cluster, &ClusterNode)>) -> Arc<WaitQueue> {
        let (router, address) = (&self.router, of.map(|(_, node)| node.address.clone()));
        let start = || {
            let target = match of {
                None => router.target.clone(),
                Some((cluster, node)) => {
                    let (queues, address) = (self.queues.clone(), address.clone());
                    let mut dismissed = node.dismissed.subscribe();
                    router.handle.spawn(async move {
                        // An error means that the cluster is gone, and the backend with it.
                        let _ = dismissed.wait_for(|dismissed| *dismissed).await;
                        queues.lock().remove(&address);
                    });
                    Arc::new(cluster.target(&node.address))
                }
            };
            let closed = router.closed.subscribe();
            WaitQueue::start(target, &self.common, &router.handle, &closed)
        };
        let mut queues = self.queues.lock();
        queues.entry(address.clone()).or_insert_with(start).clone()
    }

    /// Finds the errors that would prevent `WAIT`. If there are several servers, it is enough that one can be asked and
    /// none refuses.
    pub(super) async fn try_all(&self) -> Result<(), Fault> {
        let queues = match &self.router.nodes {
            Nodes::One(_) => vec![self.queue(None)],
            Nodes::Cluster(cluster) => {
                let masters = cluster.table.masters();
                let queues = masters.iter().map(|node| self.queue(Some((cluster, node))));
                queues.collect()
            }
        };
        let deadline = clock::now() + CONNECT;
        let asked: Vec<_> = queues
            .iter()
            .map(|queue| queue.ask(Vec::new(), deadline))
            .collect();
        let (mut there, mut away) = (false, None);
        for asked in asked {
            match asked.await {
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
    ) -> impl Future<Output = Result<(), Fault>> + use<> {
        let queue = match &self.router.nodes {
            Nodes::One(_) => Some(self.queue(None)),
            Nodes::Cluster(cluster) => {
                let owner = cluster.table.owner(key.slot());
                owner.map(|node| self.queue(Some((cluster, &node))))
            }
        };
        let asked = queue.map(|queue| queue.ask(holds, deadline));
        async move {
            let no_owner = || Fault::too_few("no node is known to have the lock's slot");
            asked.ok_or_else(no_owner)?.await
        }
    }
}
