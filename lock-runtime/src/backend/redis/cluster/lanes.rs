//! By which connections a node's replicas are asked.

use std::sync::Arc;

use super::super::replicas::{Common, Lanes};
use super::Cluster;
use super::table::Node;

impl Cluster {
    /// Those to the node that has the slot, as far as is known.
    pub(in super::super) fn lanes(&self, slot: u16, common: &Arc<Common>) -> Option<Arc<Lanes>> {
        let node = self.table.owner(slot)?;
        Some(self.lanes_to(&node, common))
    }

    /// Those to each master.
    pub(in super::super) fn all_lanes(&self, common: &Arc<Common>) -> Vec<Arc<Lanes>> {
        let masters = self.table.masters();
        let lanes = masters.iter().map(|node| self.lanes_to(node, common));
        lanes.collect()
    }

    fn lanes_to(&self, node: &Node, common: &Arc<Common>) -> Arc<Lanes> {
        let start = || {
            let target = Arc::new(self.target(&node.address));
            Lanes::start(target, common, &self.handle, &self.closed)
        };
        node.lanes.get_or_init(start).clone()
    }
}
