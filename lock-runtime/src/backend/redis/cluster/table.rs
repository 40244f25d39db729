//! The node of each slot, and the known nodes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::connection::Link;
use crate::sync::Mutex;
use crate::values::key::SLOTS;
use crate::values::{Moment, clock};

/// The time after which a node without slots is forgotten. Until then, slots may be moving to it.
const LINGER: Duration = Duration::from_secs(10);

/// A node, and the connection to it, if a request has needed one.
pub(in super::super) struct ClusterNode {
    pub(in super::super) address: Address,
    pub(super) link: OnceLock<Arc<Link>>,
    /// The node's connection ends when this becomes true.
    pub(in super::super) dismissed: watch::Sender<bool>,
}

/// The slots and their nodes. Written by the task that keeps the table up to date, and by requests that a node has
/// redirected.
pub(in super::super) struct SlotTable {
    known: Mutex<KnownNodes>,
    /// Raised by each change.
    version: watch::Sender<u64>,
}

struct KnownNodes {
    owners: Vec<Option<Arc<ClusterNode>>>,
    /// The known nodes, and the time when the slots or a redirect last named each.
    nodes: HashMap<Address, (Arc<ClusterNode>, Moment)>,
    /// The reason why no node reports the owners of the slots, if a retry cannot help.
    refusal: Option<Fault>,
}

impl KnownNodes {
    fn node(&mut self, address: &Address, now: Moment) -> Arc<ClusterNode> {
        let entry = self.nodes.entry(address.clone()).or_insert_with(|| {
            let node = ClusterNode {
                address: address.clone(),
                link: OnceLock::new(),
                dismissed: watch::Sender::new(false),
            };
            (Arc::new(node), now)
        });
        entry.1 = now;
        entry.0.clone()
    }
}

impl SlotTable {
    pub(super) fn new() -> SlotTable {
        SlotTable {
            known: Mutex::new(KnownNodes {
                owners: vec![None; SLOTS],
                nodes: HashMap::new(),
                refusal: None,
            }),
            version: watch::Sender::new(0),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns the node that has the slot, as far as this process knows.
    pub(in super::super) fn owner(&self, slot: u16) -> Option<Arc<ClusterNode>> {
        self.known.lock().owners.get(usize::from(slot))?.clone()
    }

    /// Resolves once the slot is known to have another node than this one.
    pub(super) async fn reassigned(&self, slot: u16, from: Option<&Address>) {
        let mut changed = self.changes();
        let is_from = |owner: Arc<ClusterNode>| Some(&owner.address) == from;
        let stays = || self.owner(slot).is_none_or(is_from);
        while stays() && changed.changed().await.is_ok() {}
    }

    /// Sets the reason for requests to fail whose slots have no known node.
    pub(super) fn is_refused(&self, refusal: Option<Fault>) {
        let mut known = self.known.lock();
        let told = refusal.is_some();
        known.refusal = refusal;
        drop(known);
        if told {
            self.version.send_modify(|version| *version += 1);
        }
    }

    pub(super) fn refusal(&self) -> Option<Fault> {
        self.known.lock().refusal.clone()
    }

    /// Returns a slot that the node has.
    pub(in super::super) fn slot_of(&self, address: &str) -> Option<u16> {
        let known = self.known.lock();
        let mut owners = (0..).zip(&known.owners);
        let (slot, _) = owners.find(|(_, owner)| {
            owner
                .as_ref()
                .is_some_and(|owner| *owner.address == *address)
        })?;
        Some(slot)
    }

    /// Returns the node of that address, whether or not it has slots.
    pub(super) fn node(&self, address: &Address) -> Arc<ClusterNode> {
        self.known.lock().node(address, clock::now())
    }

    /// Notes that another node has named this one as the owner of the slot.
    pub(super) fn assign(&self, slot: u16, address: &Address) {
        let mut known = self.known.lock();
        let node = known.node(address, clock::now());
        if let Some(owner) = known.owners.get_mut(usize::from(slot))
            && owner
                .as_ref()
                .is_none_or(|owner| !Arc::ptr_eq(owner, &node))
        {
            *owner = Some(node);
            drop(known);
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Stores the owners that the nodes agreed on. Slots without an answer keep their known owner.
    pub(super) fn replace(&self, owners: &[Option<Address>]) {
        let now = clock::now();
        let mut locked = self.known.lock();
        let known = &mut *locked;
        let (mut changed, mut gone) = (false, Vec::new());
        for (slot, address) in owners.iter().enumerate() {
            let Some(address) = address else { continue };
            let same = |owner: &Option<Arc<ClusterNode>>| {
                owner
                    .as_ref()
                    .is_some_and(|owner| owner.address == *address)
            };
            if !known.owners.get(slot).is_none_or(same) {
                let node = known.node(address, now);
                if let Some(owner) = known.owners.get_mut(slot) {
                    *owner = Some(node);
                    changed = true;
                }
            }
        }
        for owner in ranges(&known.owners).flatten() {
            if let Some((_, named)) = known.nodes.get_mut(&owner.address) {
                *named = now;
            }
        }
        known.nodes.retain(|_, (node, named)| {
            let stays = now.since(*named) < LINGER;
            if !stays {
                gone.push(node.clone());
            }
            stays
        });
        // Told with the table unlocked: a waker may poll a task at once, and that may read the table.
        drop(locked);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
        for node in gone {
            node.dismissed.send_replace(true);
        }
    }

    /// Returns the nodes that have slots.
    pub(in super::super) fn masters(&self) -> Vec<Arc<ClusterNode>> {
        let known = self.known.lock();
        let owners = ranges(&known.owners).flatten();
        let masters: HashMap<&Address, &Arc<ClusterNode>> =
            owners.map(|owner| (&owner.address, owner)).collect();
        masters.into_values().cloned().collect()
    }

    /// Returns the number of slots without a known node.
    pub(super) fn homeless(&self) -> usize {
        let known = self.known.lock();
        known.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// Returns the number of reasons to ask again soon: ranges of slots without a node, or with a node whose connection
    /// is down. A node without a connection does not count: no request has needed it yet, so nothing is known about it.
    pub(super) fn troubles(&self) -> usize {
        let known = self.known.lock();
        let is_trouble = |owner: &Option<&Arc<ClusterNode>>| match owner {
            None => true,
            Some(owner) => owner.link.get().is_some_and(|link| !link.is_live()),
        };
        ranges(&known.owners).filter(is_trouble).count()
    }

    pub(super) fn is_in_trouble(&self) -> bool {
        self.troubles() > 0
    }

    /// Returns a number that each change raises.
    pub(super) fn version(&self) -> u64 {
        *self.version.borrow()
    }
}

/// Returns the owner of each range of slots. The ranges are few, although the slots are many.
fn ranges(owners: &[Option<Arc<ClusterNode>>]) -> impl Iterator<Item = Option<&Arc<ClusterNode>>> {
    let same = |one: &Option<Arc<ClusterNode>>, other: &Option<Arc<ClusterNode>>| match (one, other)
    {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    owners
        .chunk_by(same)
        .filter_map(|range| range.first())
        .map(Option::as_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(table: &SlotTable, slot: u16) -> Option<String> {
        table.owner(slot).map(|node| node.address.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_reassigned_once_it_is_known_to_have_another_node() {
        let (table, from) = (SlotTable::new(), Address::from("a:1"));
        let now = Duration::from_millis(1);
        let resolves = async || {
            let reassigned = table.reassigned(7, Some(&from));
            tokio::time::timeout(now, reassigned).await.is_ok()
        };
        assert!(!resolves().await, "no node is known");
        table.replace(&vec![Some(from.clone()); SLOTS]);
        table.assign(8, &"b:1".into());
        assert!(!resolves().await);
        let waits = table.reassigned(7, Some(&from));
        let told = async { table.assign(7, &"b:1".into()) };
        let both = async { tokio::join!(waits, told) };
        tokio::time::timeout(now, both).await.unwrap();
        assert!(resolves().await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_agreed_owners_replace_an_assignment_by_one_node() {
        let table = SlotTable::new();
        let mut changes = table.changes();
        assert!(table.is_in_trouble());
        table.replace(&vec![Some("a:1".into()); SLOTS]);
        assert!(changes.has_changed().unwrap() && !table.is_in_trouble());
        table.assign(7, &"b:1".into());
        assert_eq!(owner(&table, 7).as_deref(), Some("b:1"));
        assert_eq!(table.slot_of("b:1"), Some(7));
        let b = table.owner(7).unwrap();
        table.replace(&vec![Some("a:1".into()); SLOTS]);
        assert_eq!(owner(&table, 7).as_deref(), Some("a:1"));
        assert!(
            Arc::ptr_eq(&b, &table.node(&"b:1".into())),
            "it may come back"
        );
        tokio::time::advance(LINGER).await;
        changes.mark_unchanged();
        table.replace(&vec![Some("a:1".into()); SLOTS]);
        assert!(*b.dismissed.borrow());
        assert_eq!(table.masters().len(), 1);
        assert!(
            !changes.has_changed().unwrap(),
            "all slots are where they were"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slots_that_no_node_names_keep_their_owner() {
        let table = SlotTable::new();
        table.replace(&vec![Some("a:1".into()); SLOTS]);
        table.replace(&vec![None; SLOTS]);
        assert_eq!(owner(&table, 0).as_deref(), Some("a:1"));
    }
}
