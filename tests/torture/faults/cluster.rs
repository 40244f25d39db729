//! Faults of a cluster: masters that are replaced, slots that move.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Value;
use tests::Data;
use tests::history::now_ns;

use super::{Fault, Scene, Side, proven};
use crate::clustered::Clustered;
use crate::keys::Workload;
use crate::site::Topology;

const GIVEN_UP: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks, because asking all nodes who is the master is not free.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    let deposed = [How::Killed, How::Frozen, How::ByHand].map(|how| {
        Box::new(Deposed {
            how,
            old: 0,
            affected: Vec::new(),
            looked: None,
            answered: None,
        }) as Box<dyn Fault>
    });
    let moves = SlotMoved {
        key: "",
        from: 0,
        to: 0,
    };
    deposed.into_iter().chain([Box::new(moves) as _]).collect()
}

/// The fate of the old master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// SIGKILL. It comes back empty, as a replica.
    Killed,
    /// SIGSTOP until there is another one.
    Frozen,
    /// `CLUSTER FAILOVER`: the replica has everything before it takes over.
    ByHand,
}

/// A replica becomes the master of a part of the keys.
struct Deposed {
    how: How,
    old: usize,
    /// The locks of the old master.
    affected: Vec<&'static str>,
    looked: Option<Instant>,
    answered: Option<u64>,
}

impl Deposed {
    fn look(&mut self, site: &Clustered) {
        let is_new =
            self.answered.is_none() && self.looked.is_none_or(|looked| looked.elapsed() > LOOK);
        if is_new {
            self.looked = Some(Instant::now());
            if site.has_moved(self.affected[0], self.old) {
                self.answered = Some(now_ns());
            }
        }
    }
}

impl Fault for Deposed {
    fn name(&self) -> &'static str {
        match self.how {
            How::Killed => "master-killed",
            How::Frozen => "master-frozen",
            How::ByHand => "failover-by-hand",
        }
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn loses_locks(&self, _topology: Topology) -> bool {
        self.how != How::ByHand
    }

    fn fails_over(&self) -> bool {
        true
    }

    fn splits(&self) -> bool {
        self.how == How::Frozen
    }

    fn lasts(&self) -> Range<u64> {
        match self.how {
            How::Killed | How::Frozen => 1_800..2_800,
            How::ByHand => 100..1_000,
        }
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        let site = scene.site.clustered.as_mut().expect("a cluster");
        let keys = Workload::all_of(Topology::Cluster).keys();
        let key = keys[scene.rng.usize(..keys.len())];
        self.old = site.cluster.owner_of(Clustered::slot_of(key));
        self.affected = site.keys_of(self.old);
        (self.looked, self.answered) = (None, None);
        match self.how {
            How::Killed => site.cluster.kill9(self.old),
            How::Frozen => site.cluster.pause(self.old),
            How::ByHand => {
                let replica = site.cluster.replica_of(self.old);
                let _: Value = site.cluster.query(replica, &["CLUSTER", "FAILOVER"]);
            }
        }
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.look(scene.site.clustered.as_ref().expect("a cluster"));
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let site = scene.site.clustered.as_mut().expect("a cluster");
        let deadline = Instant::now() + PATIENCE;
        let mut ordered = Instant::now();
        while self.answered.is_none() {
            if Instant::now() > deadline {
                return Err(format!("no failover within {PATIENCE:?}"));
            }
            // The servers give up a failover after five seconds. A stalled machine can make one that late.
            if self.how == How::ByHand && ordered.elapsed() > GIVEN_UP {
                let replica = site.cluster.partner_of(self.old);
                let _ = site.cluster.nodes[replica].command(&["CLUSTER", "FAILOVER"]);
                ordered = Instant::now();
            }
            std::thread::sleep(LOOK);
            self.look(site);
        }
        let handle = site.handle.clone();
        match self.how {
            How::Killed => handle.block_on(site.cluster.restart(self.old, Data::Lost)),
            How::Frozen => site.cluster.resume(self.old),
            How::ByHand => {}
        }
        let new = handle.block_on(site.cluster.replaced(self.old));
        Ok(format!("node {new} after {}", self.old))
    }

    fn answered(&self) -> Option<u64> {
        self.answered
    }

    fn affected(&self) -> Option<Vec<&'static str>> {
        Some(self.affected.clone())
    }
}

/// A lock's slot moves to another master and back, while it is held and waited for. Between the first step and the
/// last both masters have a part of it.
struct SlotMoved {
    key: &'static str,
    from: usize,
    to: usize,
}

impl Fault for SlotMoved {
    fn name(&self) -> &'static str {
        "slot-moved"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        100..1_200
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        let site = scene.site.clustered.as_ref().expect("a cluster");
        let keys = Workload::all_of(Topology::Cluster).keys();
        self.key = keys[scene.rng.usize(..keys.len())];
        let slot = Clustered::slot_of(self.key);
        self.from = site.cluster.owner_of(slot);
        let others: Vec<usize> = keys
            .iter()
            .map(|key| site.cluster.owner_of(Clustered::slot_of(key)))
            .filter(|owner| *owner != self.from)
            .collect();
        self.to = others[scene.rng.usize(..others.len())];
        site.cluster.begin_move(slot, self.to);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        // Keys move one by one, so that lock and fence are at two masters in between.
        let site = scene.site.clustered.as_ref().expect("a cluster");
        let slot = Clustered::slot_of(self.key);
        if scene.rng.u8(..20) == 0 {
            let keys = site.cluster.keys_in_slot(self.from, slot);
            if let Some(key) = keys.get(scene.rng.usize(..keys.len().max(1))) {
                site.cluster.migrate_key(key, self.to);
            }
        }
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let site = scene.site.clustered.as_ref().expect("a cluster");
        let slot = Clustered::slot_of(self.key);
        site.handle.block_on(async {
            site.cluster.finish_move(slot, self.to).await;
            site.cluster.move_slot(slot, self.from).await;
        });
        let owner = site.cluster.owner_of(slot);
        proven(
            owner == self.from,
            format!(
                "the slot of `{}` went to node {} and back",
                self.key, self.to
            ),
        )
    }

    fn affected(&self) -> Option<Vec<&'static str>> {
        Some(vec![self.key])
    }
}
