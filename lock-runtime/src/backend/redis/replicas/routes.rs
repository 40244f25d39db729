//! The choice of the server whose replicas are asked about a key: the one server, or the node of a cluster that has the
//! key.

use std::sync::Arc;

use super::super::Inner;
use super::super::cluster::Cluster;
use crate::backend::redis::connection::connect::CONNECT;
use crate::backend::redis::replicas::wait_connection::Common;
use crate::backend::redis::replicas::wait_queue::{Asked, WaitQueue};
use crate::backend::redis::router::Nodes;
use crate::backend::{Fault, Renewal};
use crate::values::{Key, Moment, Replicas, clock};

pub(super) enum Routes {
    One(Arc<WaitQueue>),
    Cluster(Arc<Cluster>, Arc<Common>),
}

impl Routes {
    pub(super) fn of(inner: &Inner, replicas: Replicas) -> Routes {
        let common = |clustered| Common::new(replicas, inner.call_timeout, clustered);
        match &inner.nodes {
            Nodes::One(_) => {
                let closed = inner.closed.subscribe();
                let target = inner.target.clone();
                Routes::One(WaitQueue::start(
                    target,
                    &common(false),
                    &inner.handle,
                    &closed,
                ))
            }
            Nodes::Cluster(cluster) => Routes::Cluster(cluster.clone(), common(true)),
        }
    }

    /// Finds the errors that would prevent `WAIT`. If there are several servers, it is enough that one can be asked
    /// and none refuses.
    pub(super) async fn try_all(&self) -> Result<(), Fault> {
        let wait_queue = match self {
            Routes::One(wait_queue) => vec![wait_queue.clone()],
            Routes::Cluster(cluster, common) => cluster.all_wait_queues(common),
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

    /// Asks about holds that are all on `key`'s server.
    ///
    /// In a cluster, that is the node that has the slot now, as far as this process knows. It need not be the node
    /// that granted the lock. If it is another one, it either has the hold with all of its keys, or refuses the
    /// request, or does not know the hold; in the last two cases nothing is confirmed. A node that is only being given
    /// the slot is not asked: if the slot's owner fails over, the keys on that node are lost to all others, however
    /// many of its replicas have them.
    pub(super) fn ask(
        &self,
        key: &Key,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> Result<Asked, Fault> {
        let wait_queue = match self {
            Routes::One(wait_queue) => Some(wait_queue.clone()),
            Routes::Cluster(cluster, common) => cluster.wait_queue(key.slot(), common),
        };
        let nobody = || Fault::too_few("no node is known to have the lock's slot");
        Ok(wait_queue.ok_or_else(nobody)?.ask(holds, deadline))
    }
}
