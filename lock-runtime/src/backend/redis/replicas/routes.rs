//! Whose replicas are asked about a key: those of the one server, or of the node of a cluster that has it.

use std::sync::Arc;

use super::super::Inner;
use super::super::cluster::Cluster;
use super::super::connect::CONNECT;
use super::super::nodes::Nodes;
use super::lane::Common;
use super::lanes::{Asked, Lanes};
use crate::backend::{Fault, Renewal};
use crate::clock::{self, Moment};
use crate::error::StoreError;
use crate::key::Key;
use crate::replicas::Replicas;

pub(super) enum Routes {
    One(Arc<Lanes>),
    Cluster(Arc<Cluster>, Arc<Common>),
}

impl Routes {
    pub(super) fn of(inner: &Inner, replicas: Replicas) -> Routes {
        let common = |clustered| Common::new(replicas, inner.call_timeout, clustered);
        match &inner.nodes {
            Nodes::One(_) => {
                let closed = inner.closed.subscribe();
                let target = inner.target.clone();
                Routes::One(Lanes::start(target, &common(false), &inner.handle, &closed))
            }
            Nodes::Cluster(cluster) => Routes::Cluster(cluster.clone(), common(true)),
        }
    }

    /// Finds out what would keep replicas from being asked. Of several servers, one that can be asked is enough, if
    /// none refuses.
    pub(super) async fn try_all(&self) -> Result<(), Fault> {
        let lanes = match self {
            Routes::One(lanes) => vec![lanes.clone()],
            Routes::Cluster(cluster, common) => cluster.all_lanes(common),
        };
        let deadline = clock::now() + CONNECT;
        let asked: Vec<_> = lanes
            .iter()
            .map(|lanes| lanes.ask(Vec::new(), deadline))
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

    /// Asks about holds that are all for `key`'s server.
    ///
    /// In a cluster that is whoever has the slot by now, as is known here, which need not be the node that granted the
    /// lock. If it is another one, it has the hold with all of its keys, or it refuses or does not know it, and nothing
    /// is confirmed. A node that is only being given the slot is not asked: what stands there is lost to all others if
    /// the slot's owner fails over, however many replicas of the node have it.
    pub(super) fn ask(
        &self,
        key: &Key,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> Result<Asked, Fault> {
        let lanes = match self {
            Routes::One(lanes) => Some(lanes.clone()),
            Routes::Cluster(cluster, common) => cluster.lanes(key.slot(), common),
        };
        let nobody = || Fault::TooFew(StoreError::new("no node is known to have the lock's slot"));
        Ok(lanes.ok_or_else(nobody)?.ask(holds, deadline))
    }
}
