//! The quorum over memory stores that fail, stop and restart on command. Time is paused.

mod faults;
pub(crate) mod flaky;
mod holding;
mod waiting;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::flaky::{Flaky, Switch};
use super::{QuorumBackend, VotingNode};
use crate::api::manager::{LockManager, events_of};
use crate::backend::memory::MemoryStore;
use crate::renew::Watch;
use crate::values::options::Options;
use crate::values::ttl::Ttl;

const MS: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The stores, and a switch in front of each. Every manager has connections of its own to all of them.
struct Rig {
    stores: Vec<MemoryStore>,
    switches: Vec<Arc<Switch>>,
    managers: Cell<usize>,
}

impl Rig {
    fn new(nodes: usize) -> Rig {
        Rig {
            stores: (0..nodes).map(|_| MemoryStore::new()).collect(),
            switches: (0..nodes).map(|_| Arc::default()).collect(),
            managers: Cell::new(0),
        }
    }

    fn manager(&self) -> LockManager {
        let options = Options {
            longest_lease: Some(LONGEST),
            ..Options::default()
        };
        let nearest = self.managers.replace(self.managers.get() + 1);
        let count = self.stores.len();
        let watch = Arc::new(Watch::default());
        let nodes = self.stores.iter().zip(&self.switches).enumerate();
        let nodes = nodes.map(|(index, (store, switch))| {
            let backend = Flaky::new(store, switch, events_of(&watch), (index + nearest) % count);
            let switch = switch.clone();
            let age = Arc::new(move || Some(switch.age()));
            VotingNode::new(Arc::new(backend), format!("node {index}"), age)
        });
        let longest = Ttl::new(LONGEST, false).unwrap();
        let backend = QuorumBackend::new(nodes.collect(), longest, Handle::current());
        LockManager::assemble(options, Arc::new(backend), watch, Arc::default())
    }

    /// Returns the number of locks that each store holds.
    fn held(&self) -> Vec<usize> {
        self.stores.iter().map(MemoryStore::held).collect()
    }

    fn is_clean(&self) -> bool {
        self.held().iter().all(|held| *held == 0)
    }

    /// Waits until no store holds anything, well within a lease.
    async fn becomes_clean(&self) {
        let clean = async {
            while !self.is_clean() {
                tokio::time::sleep(MS).await;
            }
        };
        let clean = tokio::time::timeout(4_000 * MS, clean).await;
        assert!(clean.is_ok(), "left behind: {:?}", self.held());
    }

    /// Restarts a node without its data: it forgets everything, and is young again.
    fn restarts_empty(&self, node: usize) {
        self.stores[node].clear();
        self.switches[node].restarted();
    }
}
