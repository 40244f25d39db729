//! The ids of the cluster's nodes. They tell a node of it from another server at the same address: an address is given away
//! once its server is gone, and a client may come to the new one before the cluster has noticed.
//!
//! Such a server would be believed: one without a cluster executes every script, and a node of another cluster names its own
//! nodes as the owners of slots. Both say of a hold that it is not there, and grant locks that others hold elsewhere.

use std::time::Duration;

use super::slots::{self, NodeIds, SlotView};
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::connection::Wire;
use crate::backend::redis::scripting::{self, faults};
use crate::observe::metrics::logged;
use crate::sync::Mutex;
use crate::values::{Moment, clock};

/// The least time without an answer from any known node after which the nodes of another cluster may take their place.
const REPLACED: Duration = Duration::from_secs(30);

pub(super) const FOREIGN: &str = "a node of another cluster";

/// The nodes of the cluster, as the views that counted last have named them.
#[derive(Default)]
pub(crate) struct Members(Mutex<Known>);

struct Known {
    /// Empty until there is a first view, and if the servers hide their ids.
    ids: NodeIds,
    /// Whether views of more than half of the URL's hosts have counted at once: then it is the right cluster for sure.
    is_sure: bool,
    /// The last time at which a node of the cluster was heard.
    heard_at: Moment,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            ids: NodeIds::new(),
            is_sure: false,
            heard_at: clock::now(),
        }
    }
}

impl Members {
    /// Makes sure that a new connection leads to a node of this cluster, before any request is sent on it.
    ///
    /// No later answer on it needs a check: what answers then is the server that answered here. A node that a redirect names
    /// is checked as any other.
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
        // Every user may ask for the mode.
        let mode = hello
            .as_ref()
            .ok()
            .and_then(|hello| scripting::hello_field(hello, "mode"));
        // Only the ids matter, so the address does not.
        let view = slots.map(|reply| slots::read(&reply, ":0"));
        let view = view.map_err(|error| faults::of_call(&error));
        let judged = judge(&self.0.lock().ids, mode, view.as_ref().map(Option::as_ref));
        judged.map_err(|what| Fault::not_done(format!("`{server}` is {what}")))
    }

    /// Returns `true` for the view of a node of this cluster.
    pub(super) fn know(&self, view: &SlotView) -> bool {
        view.is_of(&self.0.lock().ids)
    }

    /// Returns the views that count, each with the address that gave it, and learns the nodes that they name. At first, these
    /// are the views of the cluster that most of them are of; then, those of the cluster whose nodes are known.
    ///
    /// All ids are new once the cluster was replaced as a whole. So another cluster counts if most of the URL's `hosts` that
    /// answer are of it, and if no node of the known one was heard for a lease, and for half a minute at least. That is safe:
    /// the holds with that lease are over by then, and this process knows no more than one that starts now and asks the same
    /// hosts. Another server at a node's address cannot bring this about while any other node answers.
    ///
    /// If only few of the URL's hosts answered at first, known nodes that are fewer than the others count as none: a process
    /// that starts while most nodes are away may have found the wrong cluster.
    ///
    /// `admitted`: the addresses whose connections were open before, so that what answered is a node of the cluster. `silent`:
    /// some such node has given no view.
    pub(super) fn choose(
        &self,
        mut views: Vec<(Address, SlotView)>,
        hosts: &[Address],
        admitted: &[Address],
        silent: bool,
        lease: Duration,
    ) -> Vec<(Address, SlotView)> {
        let mut known = self.0.lock();
        if !views.iter().any(|(_, view)| view.is_of(&known.ids)) {
            // A view names the nodes that have slots. All slots may have moved to nodes that had none before.
            let of_admitted = views.iter().filter(|(by, _)| admitted.contains(by));
            known.learn(of_admitted);
        }
        let of_known = views
            .iter()
            .filter(|(_, view)| view.is_of(&known.ids))
            .count();
        let enough = known.is_sure || 2 * of_known >= views.len();
        let now = clock::now();
        if silent || of_known > 0 && enough {
            known.heard_at = now;
        }
        let of_url = |(by, _): &&(Address, SlotView)| hosts.contains(by);
        if known.ids.is_empty() {
            match of_most(views.iter()) {
                Some(most) => known.ids = most,
                None => return Vec::new(),
            }
        } else if now - known.heard_at >= lease.max(REPLACED)
            && let Some(most) = of_most(views.iter().filter(of_url))
            && most.is_disjoint(&known.ids)
        {
            logged!(
                warn,
                "the hosts of the URL have been of another cluster than before for a while: it is used from now on"
            );
            *known = Known {
                ids: most,
                ..Known::default()
            };
        }
        views.retain(|(_, view)| view.is_of(&known.ids));
        known.learn(views.iter());
        known.is_sure |= 2 * views.iter().filter(of_url).count() > hosts.len();
        views
    }
}

impl Known {
    /// Learns the nodes that these views name, if they show their ids.
    fn learn<'a>(&mut self, views: impl Iterator<Item = &'a (Address, SlotView)>) {
        let named: NodeIds = views
            .flat_map(|(_, view)| view.ids.iter().cloned())
            .collect();
        if !named.is_empty() {
            self.ids = named;
        }
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
        // The servers hide their ids, or the user may not see them: nothing can be compared.
        _ if known.is_empty() => Ok(()),
        Err(Fault::Denied(_)) => Ok(()),
        Ok(None) => Err("a node that is in no cluster yet".to_owned()),
        Err(fault) => Err(format!(
            "a node that does not say which cluster it is in (CLUSTER SLOTS: {fault})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

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
        let (denied, silent) = (Fault::denied("NOPERM"), Fault::not_done("no answer"));
        let (clustered, alone) = (Some(&b"cluster"[..]), Some(&b"standalone"[..]));
        for (known, mode, view, expected) in [
            (&ours, clustered, Ok(Some(&same)), None),
            (&ours, None, Ok(Some(&same)), None),
            (&ours, alone, Ok(Some(&same)), None),
            (&ours, clustered, Ok(Some(&other)), Some("another cluster")),
            (&ours, None, Ok(Some(&other)), Some("another cluster")),
            (&ours, clustered, Ok(None), Some("no cluster yet")),
            (&ours, clustered, Err(&denied), None),
            (&ours, clustered, Err(&silent), Some("no answer")),
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

    /// Returns the addresses whose views count, beside connections to `admitted` that were open before.
    fn chosen_beside(
        members: &Members,
        admitted: &[&str],
        views: &[(&str, &[&str])],
        silent: bool,
    ) -> Vec<String> {
        let views = views
            .iter()
            .map(|(by, ids)| (Address::from(*by), view(ids)));
        let hosts = ["one", "two", "three"].map(Address::from);
        let admitted: Vec<_> = admitted.iter().map(|by| Address::from(*by)).collect();
        let chosen = members.choose(views.collect(), &hosts, &admitted, silent, LEASE);
        chosen.iter().map(|(by, _)| by.to_string()).collect()
    }

    fn chosen(members: &Members, views: &[(&str, &[&str])], silent: bool) -> Vec<String> {
        chosen_beside(members, &[], views, silent)
    }

    #[tokio::test(start_paused = true)]
    async fn known_nodes_of_the_last_view_count_and_strangers_do_not() {
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
    async fn another_cluster_counts_after_a_lease_without_a_known_node() {
        let members = Members::default();
        chosen(&members, &[("one", &["a"])], false);
        let strangers: [(&str, &[&str]); 3] =
            [("one", &["x"]), ("two", &["x", "y"]), ("node", &["z"])];
        tokio::time::advance(LEASE * 3 / 4).await;
        assert!(chosen(&members, &strangers, true).is_empty(), "one is open");
        tokio::time::advance(LEASE * 3 / 4).await;
        assert!(chosen(&members, &strangers, false).is_empty());
        tokio::time::advance(LEASE / 2).await;
        assert!(chosen(&members, &[], false).is_empty());
        assert!(
            chosen(&members, &strangers[2..], false).is_empty(),
            "no host of the URL"
        );
        let torn: [(&str, &[&str]); 2] = [("one", &["x"]), ("two", &["y"])];
        assert!(chosen(&members, &torn, false).is_empty(), "no majority");
        assert_eq!(chosen(&members, &strangers, false), ["one", "two"]);
        assert!(members.know(&view(&["y"])) && !members.know(&view(&["a"])));
        // A process that stood still for hours goes over at its first look.
        tokio::time::advance(60 * LEASE).await;
        assert_eq!(chosen(&members, &[("one", &["v"])], false), ["one"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_whose_slots_have_all_moved_is_the_same() {
        let members = Members::default();
        chosen(&members, &[("one", &["a"])], false);
        let moved: [(&str, &[&str]); 2] = [("one", &["b"]), ("two", &["b"])];
        assert!(chosen(&members, &moved, false).is_empty());
        let chosen = chosen_beside(&members, &["one"], &moved, false);
        assert_eq!(chosen, ["one", "two"], "its connection was open before");
        assert!(members.know(&view(&["b"])) && !members.know(&view(&["a"])));
    }

    #[tokio::test(start_paused = true)]
    async fn one_node_of_a_cluster_that_most_hosts_have_named_is_enough() {
        let members = Members::default();
        let all: [(&str, &[&str]); 2] = [("one", &["a", "b"]), ("two", &["a", "b"])];
        chosen(&members, &all, false);
        let others: [(&str, &[&str]); 3] = [("one", &["x"]), ("two", &["x"]), ("node", &["a"])];
        for _ in 0..3 {
            tokio::time::advance(LEASE * 3 / 4).await;
            assert_eq!(chosen(&members, &others, false), ["node"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_cluster_of_most_hosts_replaces_one_found_by_chance() {
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
