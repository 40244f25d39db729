//! The nodes' answers about the owners of slots, and the agreement between them.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use redis::Value;

use super::url;
use crate::backend::kit::hosts::Address;
use crate::values::key::SLOTS;

/// The ids that nodes have for as long as they are in their cluster, whatever their addresses are.
pub(super) type NodeIds = HashSet<Box<str>>;

/// The slots of each master, as one node reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct SlotView {
    ranges: Vec<(RangeInclusive<u16>, Address)>,
    replicas: Vec<Address>,
    /// Empty if the server hides them.
    pub(super) ids: NodeIds,
}

impl SlotView {
    /// Returns `true` if one master has all slots that any master has.
    pub(in super::super) fn is_of_one_master(&self) -> bool {
        let mut masters = self.ranges.iter().map(|(_, master)| master);
        let first = masters.next();
        masters.all(|master| Some(master) == first)
    }

    /// Returns `true` if the view is of the cluster that these nodes are in, as far as can be said. One id is enough: a
    /// cluster changes node by node, and no two clusters have a node in common. Where there are no ids on either side,
    /// nothing can be compared.
    pub(super) fn is_of(&self, known: &NodeIds) -> bool {
        known.is_empty() || self.ids.is_empty() || !self.ids.is_disjoint(known)
    }

    fn names(&self, node: &Address) -> bool {
        let masters = self.ranges.iter().map(|(_, master)| master);
        masters.chain(&self.replicas).any(|named| named == node)
    }
}

/// Parses an answer to CLUSTER SLOTS. `from` replaces the host of a node that does not know its own name.
///
/// Returns `None` if the answer is malformed, or names no master at all, as that of a node that was just started or
/// reset.
pub(in super::super) fn read(reply: &Value, from: &str) -> Option<SlotView> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let (own_host, _) = url::split(from)?;
    let mut view = SlotView {
        ranges: Vec::with_capacity(ranges.len()),
        replicas: Vec::new(),
        ids: NodeIds::new(),
    };
    for range in ranges {
        let Value::Array(parts) = range else {
            return None;
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            replicas @ ..,
        ] = parts.as_slice()
        else {
            return None;
        };
        let (first, last) = (slot(*first)?, slot(*last)?);
        view.ids.extend(id(master));
        if let Some(master) = node(master, own_host)? {
            view.ranges.push((first..=last, master));
        }
        for replica in replicas {
            let Value::Array(replica) = replica else {
                return None;
            };
            view.replicas.extend(node(replica, own_host)?);
            view.ids.extend(id(replica));
        }
    }
    (!view.ranges.is_empty()).then_some(view)
}

/// Returns the address of a node. The inner `None` is that of a node that is configured to announce a host name, and has
/// none.
fn node(parts: &[Value], own_host: &str) -> Option<Option<Address>> {
    let [host, Value::Int(port), ..] = parts else {
        return None;
    };
    let host = match host {
        Value::Nil => own_host,
        Value::BulkString(host) if host.is_empty() => own_host,
        Value::BulkString(host) if host == b"?" => return Some(None),
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => return None,
    };
    let port = u16::try_from(*port).ok()?;
    Some(Some(url::address(host, port)))
}

/// Returns the id of a node. Old servers, and some that only look like a cluster, show none.
fn id(parts: &[Value]) -> Option<Box<str>> {
    match parts.get(2)? {
        Value::BulkString(id) if !id.is_empty() => std::str::from_utf8(id).ok().map(Box::from),
        _ => None,
    }
}

fn slot(number: i64) -> Option<u16> {
    let slot = u16::try_from(number).ok()?;
    (usize::from(slot) < SLOTS).then_some(slot)
}

/// Returns for each slot the master that most of the views name. Each view comes with the node that gave it. On a tie,
/// the known master stays. `before` returns the owner of a slot that is known so far, and whether the connection to it is
/// live.
///
/// A master that was cut off from the others, or frozen, still names itself. It is outvoted. If no other node names it,
/// it does not replace a known master that is live; otherwise requests would ask it about holds that it never received.
/// A node that was asked at another address than the cluster's own, such as a seed's host name, may be that master.
/// If it is right, the other master itself will redirect requests to it.
pub(super) fn agree(
    views: &[(Address, SlotView)],
    before: impl Fn(u16) -> Option<(Address, bool)>,
) -> Vec<Option<Address>> {
    let mut votes: Vec<Vec<(&Address, usize, bool)>> = vec![Vec::new(); SLOTS];
    for (voter, view) in views {
        let is_known = view.names(voter);
        for (range, master) in &view.ranges {
            for slot in range.clone() {
                let Some(votes) = votes.get_mut(usize::from(slot)) else {
                    continue;
                };
                match votes.iter_mut().find(|(named, ..)| *named == master) {
                    Some((_, count, alone)) => (*count, *alone) = (*count + 1, false),
                    None => votes.push((master, 1, voter == master || !is_known)),
                }
            }
        }
    }
    let agreed = (0..).zip(&votes).map(|(slot, votes)| {
        let most = votes.iter().map(|(_, count, _)| *count).max();
        let mut leaders = votes.iter().filter(|(_, count, _)| Some(*count) == most);
        let is_tie = leaders.clone().count() > 1;
        let stays = |(known, is_live): &(Address, bool)| {
            leaders.clone().any(|(named, _, alone)| {
                if is_tie {
                    *named == known
                } else {
                    *alone && *is_live
                }
            })
        };
        let known = before(slot).filter(stays).map(|(known, _)| known);
        known.or_else(|| leaders.next().map(|(named, ..)| (*named).clone()))
    });
    agreed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![
            bulk(host),
            Value::Int(port),
            bulk("id"),
            Value::Array(vec![]),
        ])
    }

    fn range(first: i64, last: i64, master: Value) -> Value {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            master,
            node("r", 1),
        ])
    }

    fn view(ranges: &[(u16, u16, &str)]) -> SlotView {
        let range = |&(first, last, master): &(u16, u16, &str)| (first..=last, master.into());
        SlotView {
            ranges: ranges.iter().map(range).collect(),
            replicas: vec!["r:1".into(); ranges.len()],
            ids: NodeIds::from(["id".into()]),
        }
    }

    #[test]
    fn masters_and_their_slots_are_read() {
        let reply = Value::Array(vec![
            range(0, 100, node("a", 7000)),
            range(101, 16_383, node("", 7001)),
        ]);
        let read = read(&reply, "seed:7001").unwrap();
        assert_eq!(
            read,
            view(&[(0, 100, "a:7000"), (101, 16_383, "seed:7001")])
        );
    }

    #[test]
    fn a_malformed_answer_is_not_a_view() {
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![range(0, 16_384, node("a", 1))]),
            Value::Array(vec![range(-1, 1, node("a", 1))]),
            Value::Array(vec![range(0, 1, node("a", 70_000))]),
            Value::Array(vec![range(0, 1, Value::Array(vec![]))]),
        ] {
            assert_eq!(read(&bad, "seed:1"), None, "{bad:?}");
        }
    }

    #[test]
    fn the_ids_of_masters_and_replicas_are_read_if_there_are_any() {
        let of = |id: Option<Value>| {
            let parts = [bulk("a"), Value::Int(1)].into_iter().chain(id);
            Value::Array(parts.collect())
        };
        let read = |master, replica| {
            let parts = vec![Value::Int(0), Value::Int(1), master, replica];
            let reply = Value::Array(vec![Value::Array(parts)]);
            read(&reply, "seed:1").unwrap().ids
        };
        let both = read(of(Some(bulk("m"))), of(Some(bulk("r"))));
        assert_eq!(both, NodeIds::from(["m".into(), "r".into()]));
        for none in [None, Some(bulk("")), Some(Value::Nil)] {
            assert!(read(of(none.clone()), of(none)).is_empty());
        }
        let nameless = Value::Array(vec![bulk("?"), Value::Int(1), bulk("n")]);
        assert_eq!(
            read(of(None), nameless),
            NodeIds::from(["n".into()]),
            "a node without a name has an id"
        );
    }

    #[test]
    fn one_node_in_common_makes_it_the_same_cluster() {
        let ids =
            |names: &[&str]| -> NodeIds { names.iter().map(|name| Box::from(*name)).collect() };
        let of = |names: &[&str]| SlotView {
            ids: ids(names),
            ..view(&[(0, 1, "a:1")])
        };
        assert!(of(&["1", "2"]).is_of(&ids(&["2", "3"])));
        assert!(!of(&["1", "2"]).is_of(&ids(&["3", "4"])));
        assert!(of(&[]).is_of(&ids(&["1"])), "the server hides its ids");
        assert!(of(&["1"]).is_of(&ids(&[])), "nothing is known yet");
    }

    fn before(owner: &str, live: bool) -> impl Fn(u16) -> Option<(Address, bool)> {
        move |_| Some((owner.into(), live))
    }

    fn all(owners: &[Option<Address>], expected: &str) -> bool {
        owners
            .iter()
            .all(|owner| owner.as_deref() == Some(expected))
    }

    #[test]
    fn a_master_that_was_cut_off_is_outvoted() {
        let old = ("old:1".into(), view(&[(0, 16_383, "old:1")]));
        let new = |voter: &str| (voter.into(), view(&[(0, 16_383, "new:1")]));
        let views = [old.clone(), new("a:1"), new("b:1")];
        assert!(all(&agree(&views, before("old:1", true)), "new:1"));
        let even = [old.clone(), new("a:1")];
        assert!(all(&agree(&even, before("old:1", true)), "old:1"));
        assert!(all(&agree(&even, before("new:1", true)), "new:1"));
    }

    #[test]
    fn a_node_that_names_only_itself_replaces_no_live_owner() {
        let views = [("old:1".into(), view(&[(0, 16_383, "old:1")]))];
        assert!(all(&agree(&views, before("new:1", true)), "new:1"));
        assert!(all(&agree(&views, before("new:1", false)), "old:1"));
        assert!(all(&agree(&views, |_| None), "old:1"));
        let views = [("r:1".into(), view(&[(0, 16_383, "old:1")]))];
        assert!(all(&agree(&views, before("new:1", true)), "old:1"));
        // It may be the old master itself, at an address of a seed.
        let views = [("seed-host:1".into(), view(&[(0, 16_383, "old:1")]))];
        assert!(all(&agree(&views, before("new:1", true)), "new:1"));
        assert!(all(&agree(&views, before("new:1", false)), "old:1"));
    }

    #[test]
    fn a_slot_that_no_node_names_has_no_owner() {
        let views = [("a:1".into(), view(&[(1, 1, "a:1")]))];
        let owners = agree(&views, |_| None);
        assert_eq!(owners.len(), SLOTS);
        assert_eq!(owners[1].as_deref(), Some("a:1"));
        assert!(owners[0].is_none());
    }
}
