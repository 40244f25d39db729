//! A check of which nodes of a quorum answer, and count.

use std::sync::Arc;
use std::time::Duration;

use super::QuorumBackend;
use super::broadcast::Round;
use crate::backend::Fault;
use crate::values::{Checkup, NodeHealth, clock};

/// Asks every node at once. A node that restarted a short while ago counts as down although it answers.
pub(super) async fn ask(quorum: &Arc<QuorumBackend>, timeout: Duration) -> Checkup {
    let mut round = Round::ask(quorum, timeout, |quorum, index| async move {
        let node = &quorum.nodes[index];
        // The node is one server, or a store of this process.
        let server = node.backend.health(timeout).await.nodes.pop();
        let mut seen =
            server.unwrap_or_else(|| NodeHealth::new("", node.began.wall(), Ok(Duration::ZERO)));
        seen.node.clone_from(&node.shown);
        let down = node.is_down(quorum.longest);
        seen.error = seen.error.or_else(|| Some(down?.to_string()));
        Ok(seen)
    });
    let mut nodes = Vec::with_capacity(quorum.nodes.len());
    while let Some(seen) = round.next().await {
        nodes.push(seen);
    }
    let gone = |(node, fault): &(String, Fault)| {
        NodeHealth::new(node.as_str(), clock::now().wall(), Err(fault.to_string()))
    };
    nodes.extend(round.faults.iter().map(gone));
    Checkup {
        nodes,
        majority: true,
    }
}
