//! The ids of the cluster's nodes. They tell a node of it from another server at the same address: an address is given away
//! once its server is gone, and a client may come to the new one before the cluster has noticed.
//!
//! Such a server would be believed: one without a cluster executes every script, and a node of another cluster names its own
//! nodes as the owners of slots. Both say of a hold that it is not there, and grant locks that others hold elsewhere.

use std::time::Duration;

use redis::Value;

use super::super::sentinel::Address;
use super::slots::{self, NodeIds, SlotView};
use crate::backend::Fault;
use crate::backend::kit::standing::Standing;
use crate::backend::redis::connection::{Wire, dial};
use crate::backend::redis::scripting::{self, faults};
use crate::observe::metrics::logged;
use crate::sync::Mutex;

/// The least time without an answer from any known node after which the nodes of another cluster may take their place.
const REPLACED: Duration = Duration::from_secs(30);

pub(super) const FOREIGN: &str = "a node of another cluster";

/// The nodes that the views which counted last have named.
#[derive(Default)]
pub(crate) struct Members {
    /// Empty until there is a first view, and if the servers hide their ids.
    ids: Mutex<NodeIds>,
    /// The time since which some of these nodes answer, or since which none does.
    heard: Standing,
}

impl Members {
    /// Makes sure that a new connection leads to a node of this cluster, before any request is sent on it.
    ///
    /// No later answer on it needs a check: what answers then is the server that answered here. A node that a redirect names
    /// is checked as any other. If it has just joined the cluster, it knows the other nodes.
    pub(in super::super) async fn admit(
        &self,
        connection: &Wire,
        server: &str,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let hello = redis::cmd("HELLO");
        let slots = redis::cmd("CLUSTER").arg("SLOTS").take();
        let (mut one, mut other) = (connection.clone(), connection.clone());
        // Both are sent at once: one round trip.
        let asked = async {
            Ok::<_, Fault>(tokio::join!(
                scripting::send(&mut one, &hello),
                scripting::send(&mut other, &slots)
            ))
        };
        let (hello, slots) = scripting::in_time("CLUSTER SLOTS", timeout, asked).await?;
        let mode = hello.as_ref().ok().and_then(mode);
        // Only the ids matter, so the address does not.
        let view = slots.map(|reply| slots::read(&reply, ":0"));
        let view = view.map_err(|error| faults::of_call(&error));
        let judged = judge(&self.ids.lock(), mode, view.as_ref().map(Option::as_ref));
        judged.map_err(|what| Fault::not_done(format!("`{server}` is {what}")))
    }

    /// Returns `true` for the view of a node of this cluster.
    pub(super) fn know(&self, view: &SlotView) -> bool {
        view.is_of(&self.ids.lock())
    }

    /// Returns the views that count, each with the address that gave it, and learns the nodes that they name. At first, these
    /// are the views of the cluster that most of them are of; then, those of the cluster whose nodes are known.
    ///
    /// All ids are new once the cluster was replaced as a whole. So another cluster counts if most of the URL's `hosts` that
    /// answer are of it, and if no node of the known one has answered for a lease, and for half a minute at least. That is
    /// safe: the holds with that lease are over by then, and this process knows no more than one that starts now and asks
    /// the same hosts. Another server at a node's address cannot bring this about while any other node answers.
    ///
    /// Known nodes that are fewer than the others count as none: a process that starts while most nodes are away may have
    /// found the wrong cluster.
    ///
    /// `silent`: some node whose connection is open has given no view. It may be a node of this cluster.
    pub(super) fn choose(
        &self,
        mut views: Vec<(Address, SlotView)>,
        hosts: &[Address],
        silent: bool,
        lease: Duration,
    ) -> Vec<(Address, SlotView)> {
        let mut known = self.ids.lock();
        let of_known = views.iter().filter(|(_, view)| view.is_of(&known)).count();
        let is_heard = silent || of_known > 0 && 2 * of_known >= views.len();
        let since = self.heard.note(is_heard);
        let is_replaced = !is_heard && since.elapsed() >= lease.max(REPLACED);
        let of_url = |(by, _): &&(Address, SlotView)| hosts.contains(by);
        let mut ids = known.clone();
        if known.is_empty() {
            match of_most(views.iter()) {
                Some(most) => ids = most,
                None => return Vec::new(),
            }
        } else if is_replaced
            && let Some(most) = of_most(views.iter().filter(of_url))
            && most.is_disjoint(&known)
        {
            logged!(
                warn,
                "the hosts of the URL have been of another cluster than before for a while: it is used from now on"
            );
            ids = most;
        }
        views.retain(|(_, view)| view.is_of(&ids));
        let named = views.iter().flat_map(|(_, view)| view.ids.iter().cloned());
        let named: NodeIds = named.collect();
        if !named.is_empty() {
            *known = named;
        }
        views
    }
}

/// Returns the ids in one view of the cluster that more than half of the views are of, if there is such a cluster.
fn of_most<'a>(views: impl Iterator<Item = &'a (Address, SlotView)> + Clone) -> Option<NodeIds> {
    let count = views.clone().count();
    let is_of_most = |ids: &NodeIds| {
        let of_it = views.clone().filter(|(_, view)| view.is_of(ids));
        2 * of_it.count() > count
    };
    let mut each = views.clone().map(|(_, view)| &view.ids);
    each.find(|ids| is_of_most(ids)).cloned()
}

/// Returns the mode that the answer to HELLO names. Every user may ask for it.
fn mode(hello: &Value) -> Option<&[u8]> {
    dial::said(hello, "mode")
}

/// Decides whether a server is a node of the cluster whose nodes are known. If it is not, returns what it is.
///
/// `view`: its answer to CLUSTER SLOTS, which is `None` if it names no slots.
fn judge(
    known: &NodeIds,
    mode: Option<&[u8]>,
    view: Result<Option<&SlotView>, &Fault>,
) -> Result<(), String> {
    match view {
        // What reports slots is in a cluster, whatever it calls its mode.
        Ok(Some(view)) if view.is_of(known) => Ok(()),
        Ok(Some(_)) => Err(FOREIGN.to_owned()),
        _ if mode.is_some_and(|mode| mode != b"cluster") => {
            Err("a server without a cluster".to_owned())
        }
        // The servers hide their ids: nothing can be compared.
        _ if known.is_empty() => Ok(()),
        Ok(None) => Err("a node that is in no cluster yet".to_owned()),
        Err(fault) => Err(format!(
            "a node that does not say which cluster it is in (CLUSTER SLOTS: {fault})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// Returns the view of a node that names these nodes. An empty id is hidden.
    fn view(ids: &[&str]) -> SlotView {
        let mut range = vec![Value::Int(0), Value::Int(1)];
        for id in ids {
            range.push(Value::Array(vec![bulk("host"), Value::Int(1), bulk(id)]));
        }
        slots::read(&Value::Array(vec![Value::Array(range)]), ":0").unwrap()
    }

    fn known(ids: &[&str]) -> NodeIds {
        ids.iter().map(|id| Box::from(*id)).collect()
    }

    #[test]
    fn what_is_no_node_of_the_cluster_is_named() {
        let (ours, nobody) = (known(&["a", "b"]), known(&[]));
        let (same, other, hidden) = (view(&["b", "c"]), view(&["x"]), view(&[""]));
        let denied = Fault::denied("NOPERM");
        let (clustered, alone) = (Some(&b"cluster"[..]), Some(&b"standalone"[..]));
        for (known, mode, view, expected) in [
            (&ours, clustered, Ok(Some(&same)), None),
            (&ours, None, Ok(Some(&same)), None),
            (&ours, alone, Ok(Some(&same)), None),
            (&ours, clustered, Ok(Some(&other)), Some("another cluster")),
            (&ours, None, Ok(Some(&other)), Some("another cluster")),
            (&ours, clustered, Ok(None), Some("no cluster yet")),
            (&ours, clustered, Err(&denied), Some("NOPERM")),
            (&ours, alone, Err(&denied), Some("without a cluster")),
            // Nothing can be compared: the mode counts, if it is shown.
            (&ours, clustered, Ok(Some(&hidden)), None),
            (&nobody, clustered, Ok(Some(&other)), None),
            (&nobody, clustered, Err(&denied), None),
            (&nobody, None, Ok(None), None),
            (&nobody, alone, Err(&denied), Some("without a cluster")),
        ] {
            let judged = judge(known, mode, view);
            match expected {
                None => assert_eq!(judged, Ok(()), "{known:?} {mode:?} {view:?}"),
                Some(named) => {
                    let what = judged.unwrap_err();
                    assert!(what.contains(named), "{known:?} {mode:?} {view:?}: {what}");
                }
            }
        }
    }

    /// Returns the addresses whose views count.
    fn chosen(members: &Members, views: &[(&str, &[&str])], silent: bool) -> Vec<String> {
        let views = views
            .iter()
            .map(|(by, ids)| (Address::from(*by), view(ids)));
        let hosts = ["one", "two", "three"].map(Address::from);
        let chosen = members.choose(views.collect(), &hosts, silent, LEASE);
        chosen.iter().map(|(by, _)| by.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_do_not_count_beside_a_node_and_the_known_nodes_are_those_of_the_last_view() {
        let members = Members::default();
        assert_eq!(chosen(&members, &[("one", &["a", "b"])], false), ["one"]);
        let mixed: [(&str, &[&str]); 3] = [("one", &["x"]), ("two", &["x"]), ("node", &["b", "c"])];
        assert_eq!(chosen(&members, &mixed, false), ["node"]);
        assert_eq!(chosen(&members, &[("node", &["c", "d"])], false), ["node"]);
        assert!(members.know(&view(&["d"])) && !members.know(&view(&["a"])));
        assert_eq!(chosen(&members, &[("node", &[""])], false), ["node"]);
        assert!(!members.know(&view(&["a"])), "hidden ids replace none");
    }

    #[tokio::test(start_paused = true)]
    async fn another_cluster_counts_once_no_known_node_has_answered_for_a_lease() {
        let members = Members::default();
        chosen(&members, &[("one", &["a"])], false);
        tokio::time::advance(2 * LEASE).await;
        let strangers: [(&str, &[&str]); 3] =
            [("one", &["x"]), ("two", &["x", "y"]), ("node", &["z"])];
        assert!(chosen(&members, &strangers, false).is_empty());
        tokio::time::advance(LEASE / 2).await;
        assert!(chosen(&members, &strangers, true).is_empty(), "one is open");
        tokio::time::advance(2 * LEASE).await;
        assert!(chosen(&members, &strangers, false).is_empty());
        tokio::time::advance(LEASE / 2).await;
        assert!(chosen(&members, &strangers, false).is_empty());
        assert!(chosen(&members, &[], false).is_empty());
        tokio::time::advance(LEASE / 2).await;
        assert!(
            chosen(&members, &strangers[2..], false).is_empty(),
            "no host of the URL"
        );
        let torn: [(&str, &[&str]); 2] = [("one", &["x"]), ("two", &["y"])];
        assert!(chosen(&members, &torn, false).is_empty(), "no majority");
        assert_eq!(chosen(&members, &strangers, false), ["one", "two"]);
        assert!(members.know(&view(&["y"])) && !members.know(&view(&["a"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_was_found_first_by_chance_gives_way_to_that_of_most_hosts() {
        let members = Members::default();
        assert_eq!(chosen(&members, &[("one", &["x"])], false), ["one"]);
        let even: [(&str, &[&str]); 2] = [("one", &["x"]), ("two", &["a"])];
        let views: [(&str, &[&str]); 3] = [("one", &["x"]), ("two", &["a"]), ("three", &["a"])];
        for _ in 0..2 {
            assert_eq!(chosen(&members, &views, false), ["one"]);
            tokio::time::advance(LEASE * 3 / 4).await;
            assert_eq!(chosen(&members, &even, false), ["one"]);
            tokio::time::advance(LEASE * 3 / 4).await;
        }
        assert_eq!(chosen(&members, &views, false), ["one"]);
        tokio::time::advance(LEASE).await;
        assert_eq!(chosen(&members, &views, false), ["two", "three"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_view_is_that_of_most() {
        let torn: [(&str, &[&str]); 2] = [("one", &["a"]), ("two", &["x"])];
        let members = Members::default();
        assert!(chosen(&members, &torn, false).is_empty());
        let views: [(&str, &[&str]); 3] =
            [("one", &["x"]), ("two", &["a", "b"]), ("three", &["b"])];
        assert_eq!(chosen(&members, &views, false), ["two", "three"]);
        assert!(!members.know(&view(&["x"])));
        let members = Members::default();
        let hidden: [(&str, &[&str]); 2] = [("one", &[""]), ("two", &[""])];
        assert_eq!(chosen(&members, &hidden, false), ["one", "two"]);
        assert!(members.know(&view(&["x"])));
    }
}
