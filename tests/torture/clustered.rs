//! A Redis Cluster of three masters with a replica each.

use tests::RedisServer;
use tests::cluster::{RedisCluster, slot_of};
use tokio::runtime::{Handle, Runtime};

use crate::keys::Workload;
use crate::server::takes_writes;
use crate::site::Topology;

pub(crate) struct Clustered {
    pub(crate) cluster: RedisCluster,
    pub(crate) handle: Handle,
}

impl Clustered {
    pub(crate) fn start(runtime: &Runtime) -> Self {
        Self {
            cluster: runtime.block_on(RedisCluster::builder().replicas().start()),
            handle: runtime.handle().clone(),
        }
    }

    /// Returns the master of a lock.
    pub(crate) fn master_of(&self, key: &str) -> &RedisServer {
        &self.cluster.nodes[self.cluster.owner_of_key(&lock(key))]
    }

    /// Returns the locks of one node.
    pub(crate) fn keys_of(&self, node: usize) -> Vec<&'static str> {
        let mut keys = Workload::all_of(Topology::Cluster).keys();
        keys.retain(|key| self.cluster.owner_of_key(&lock(key)) == node);
        keys
    }

    /// Returns whether another node than this one takes writes in the slot of a lock.
    pub(crate) fn has_moved(&self, key: &str, from: usize) -> bool {
        let key = lock(key);
        let owner = self.cluster.owner_of_key(&key);
        let probe = format!("{{{key}}}:probe");
        owner != from && takes_writes(self.cluster.nodes[owner].addr(), &probe)
    }

    pub(crate) fn slot_of(key: &str) -> u16 {
        slot_of(lock(key))
    }
}

fn lock(key: &str) -> String {
    format!("lock:{key}")
}
