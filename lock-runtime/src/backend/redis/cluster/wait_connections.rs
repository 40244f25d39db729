//! The connections by which a node's replicas are asked.

use std::sync::Arc;

use super::super::replicas::{Common, WaitQueue};
use super::Cluster;
use super::table::Node;

impl Cluster {
    /// Returns the connections to the node that has the slot, as far as is known.
    pub(in super::super) fn wait_queue(
        &self,
        slot: u16,
        common: &Arc<Common>,
    ) -> Option<Arc<WaitQueue>> {
        let node = self.table.owner(slot)?;
        Some(self.wait_queue_to(&node, common))
    }

    /// Returns the connections to each master.
    pub(in super::super) fn all_wait_queues(&self, common: &Arc<Common>) -> Vec<Arc<WaitQueue>> {
        let masters = self.table.masters();
        let wait_queue = masters.iter().map(|node| self.wait_queue_to(node, common));
        wait_queue.collect()
    }

    fn wait_queue_to(&self, node: &Node, common: &Arc<Common>) -> Arc<WaitQueue> {
        let start = || {
            let target = Arc::new(self.target(&node.address));
            WaitQueue::start(target, common, &self.opening.runtime, &self.closed)
        };
        node.wait_queue.get_or_init(start).clone()
    }
}
