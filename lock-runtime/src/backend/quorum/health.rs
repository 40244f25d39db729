//! A check of which nodes of a quorum answer, and count.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::QuorumShared;
use crate::backend::Fault;
use crate::values::{Checkup, NodeHealth, clock};

/// Asks every node at once. A node that restarted a short while ago counts as down although it answers.
pub(super) async fn ask(inner: &Arc<QuorumShared>, timeout: Duration) -> Checkup {
    let mut asking = JoinSet::new();
    for index in 0..inner.nodes.len() {
        let shared = inner.clone();
        let asked = async move {
            let node = shared.nodes.get(index)?;
            // The node is one server, or a store of this process.
            let server = node.backend.health(timeout).await.nodes.pop();
            let mut seen = server
                .unwrap_or_else(|| NodeHealth::new("", node.began.wall(), Ok(Duration::ZERO)));
            seen.node.clone_from(&node.shown);
            let down = node.is_down(shared.longest);
            seen.error = seen.error.or_else(|| Some(down?.to_string()));
            Some(seen)
        };
        asking.spawn_on(asked, &inner.handle);
    }
    let mut nodes = Vec::with_capacity(asking.len());
    let all = async {
        while let Some(asked) = asking.join_next().await {
            nodes.extend(asked.ok().flatten());
        }
    };
    let asked = Fault::if_driven(timeout, all).await;
    let why = asked.err().unwrap_or_else(Fault::runtime_ended).to_string();
    let gone = || NodeHealth::new("a node", clock::now().wall(), Err(why.clone()));
    nodes.resize_with(inner.nodes.len(), gone);
    Checkup {
        nodes,
        majority: true,
    }
}
