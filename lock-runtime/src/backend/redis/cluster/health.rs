//! A check of whether the masters of a cluster grant locks, and whether every slot has a master.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::Cluster;
use crate::values::{Moment, NodeHealth, ShutdownCause, clock};

impl Cluster {
    /// Asks every master at once.
    pub(in super::super) async fn health(self: &Arc<Self>, deadline: Moment) -> Vec<NodeHealth> {
        let mut asking = JoinSet::new();
        for node in self.table.masters() {
            let cluster = self.clone();
            let asked = async move {
                let is_new = node.link.get().is_none();
                let link = cluster.link(&node);
                if is_new {
                    // No request has needed the connection yet, which says nothing about the node.
                    let _ = link.get(clock::now(), deadline).await;
                }
                link.health(&node.address, deadline).await
            };
            asking.spawn_on(asked, &self.opening.runtime);
        }
        let mut nodes = Vec::with_capacity(asking.len());
        while let Some(asked) = asking.join_next().await {
            nodes.push(asked.unwrap_or_else(|_| {
                self.as_a_whole(clock::now(), ShutdownCause::RuntimeEnded.to_string())
            }));
        }
        let homeless = self.table.homeless();
        let since = self.covered.note(homeless == 0);
        if homeless > 0 {
            let why = self.table.refusal().map_or_else(
                || format!("no node is known to have {homeless} of the slots"),
                |fault| fault.to_string(),
            );
            nodes.push(self.as_a_whole(since, why));
        }
        nodes
    }

    fn as_a_whole(&self, since: Moment, why: String) -> NodeHealth {
        NodeHealth::new(&*self.shown, since.wall(), Err(why))
    }
}
