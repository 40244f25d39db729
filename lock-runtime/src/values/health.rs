//! Whether locks can be acquired: what the servers of a store answer, and what that means.

use std::time::{Duration, SystemTime};

use crate::values::store::StoreKind;

/// The number of servers that a [`Health`] lists at most.
const MOST_NODES: usize = 32;

/// Whether locks can be acquired: see [`LockManager::health`](crate::LockManager::health).
///
/// ```
/// use lock_runtime::{HealthState, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let health = locks.health().await;
/// for node in health.nodes.iter().filter(|node| !node.is_ok()) {
///     eprintln!("{} since {:?}: {:?}", node.node, node.since, node.error);
/// }
/// assert_eq!(health.state, HealthState::Ok);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// The store.
    pub store: StoreKind,
    /// Whether all locks can be acquired, some of them, or none.
    pub state: HealthState,
    /// The time since which that has been so, by this machine's clock, as far as this manager has noticed.
    pub since: SystemTime,
    /// The time that the answer took; with several servers, that of the last answer that was needed. `None` if none
    /// came.
    pub latency: Option<Duration>,
    /// The reason why not all locks can be acquired. It names servers, and holds no passwords.
    pub error: Option<String>,
    /// The servers, 32 at most, the ones that do not answer first. Empty for a memory store.
    pub nodes: Vec<NodeHealth>,
}

/// Whether all locks can be acquired, some of them, or none.
///
/// See the example of [`Health`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HealthState {
    /// All of them.
    Ok,
    /// In a cluster, not those of some masters or slots.
    Partial,
    /// None: no server answers, or no majority of a quorum; or the manager was shut down.
    Down,
}

/// One server of a store.
///
/// See the example of [`Health`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeHealth {
    /// Its URL or its address, without user and password.
    pub node: String,
    /// The time since which it has answered, or has failed to answer.
    pub since: SystemTime,
    /// The time that its answer took. `None` if none came.
    pub latency: Option<Duration>,
    /// The reason why it cannot keep locks now; `None` if it can.
    pub error: Option<String>,
}

impl Health {
    /// Whether every lock can be acquired. For a quorum, a majority is enough.
    pub fn is_ok(&self) -> bool {
        self.state == HealthState::Ok
    }

    /// Derives the health from a checkup. `began` is the time since which a store without servers has been used.
    pub(crate) fn of(store: StoreKind, checkup: Checkup, began: SystemTime) -> Health {
        let Checkup {
            mut nodes,
            majority,
        } = checkup;
        nodes.sort_by_key(|node| (node.is_ok(), node.since));
        let all = nodes.len();
        let failing = nodes.iter().filter(|node| !node.is_ok()).count();
        let (bad, good) = nodes.split_at(failing);
        let needed = if majority { all / 2 + 1 } else { all };
        let state = match good.len() {
            good if good >= needed => HealthState::Ok,
            good if good > 0 && !majority => HealthState::Partial,
            _ => HealthState::Down,
        };
        // The nodes of each sort are in the order in which they came to be so.
        let turned = match state {
            HealthState::Ok => good.get(needed.saturating_sub(1)),
            HealthState::Down if !majority => bad.last(),
            _ => bad.get(all - needed),
        };
        let since = turned.map_or(began, |node| node.since);
        let mut latencies: Vec<_> = good.iter().filter_map(|node| node.latency).collect();
        latencies.sort();
        let latency = match latencies.get(needed.saturating_sub(1)).or(latencies.last()) {
            _ if state == HealthState::Down => None,
            None => Some(Duration::ZERO),
            latency => latency.copied(),
        };
        let error = bad.first().filter(|_| state != HealthState::Ok);
        let error = error.and_then(|node| {
            let why = node.error.as_ref()?;
            Some(format!("{}: {why}", node.node))
        });
        nodes.truncate(MOST_NODES);
        Health {
            store,
            state,
            since,
            latency,
            error,
            nodes,
        }
    }

    /// The health of a store that was not asked.
    pub(crate) fn down(store: StoreKind, since: SystemTime, why: String) -> Health {
        Health {
            store,
            state: HealthState::Down,
            since,
            latency: None,
            error: Some(why),
            nodes: Vec::new(),
        }
    }
}

impl NodeHealth {
    pub(crate) fn new(
        node: impl Into<String>,
        since: SystemTime,
        answer: Result<Duration, String>,
    ) -> NodeHealth {
        let (latency, error) = match answer {
            Ok(latency) => (Some(latency), None),
            Err(why) => (None, Some(why)),
        };
        NodeHealth {
            node: node.into(),
            since,
            latency,
            error,
        }
    }

    /// Whether it answers, and can keep locks.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }
}

/// The answers of a store's servers.
#[derive(Debug, Default)]
pub(crate) struct Checkup {
    /// None for a store in this process.
    pub(crate) nodes: Vec<NodeHealth>,
    /// Whether more than half of them are enough, or each has locks that the others have not.
    pub(crate) majority: bool,
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// A node that answers in `latency` ms, or does not answer, from the second `since` on.
    fn node((since, latency): (u64, Option<u64>)) -> NodeHealth {
        let answer = latency.map(Duration::from_millis);
        NodeHealth::new(
            format!("n{since}"),
            at(since),
            answer.ok_or_else(|| "away".to_owned()),
        )
    }

    fn health(majority: bool, nodes: &[(u64, Option<u64>)]) -> Health {
        let nodes = nodes.iter().copied().map(node).collect();
        Health::of(StoreKind::Redis, Checkup { nodes, majority }, at(1))
    }

    /// State, since, latency.
    fn told(health: &Health) -> (HealthState, u64, Option<u128>) {
        let since = health.since.duration_since(UNIX_EPOCH).unwrap();
        let latency = health.latency.map(|latency| latency.as_millis());
        (health.state, since.as_secs(), latency)
    }

    #[test]
    fn a_store_without_servers_is_well_since_it_has_been_used() {
        let health = health(false, &[]);
        assert_eq!(told(&health), (HealthState::Ok, 1, Some(0)));
    }

    #[test]
    fn one_server_is_the_store() {
        let up = health(false, &[(5, Some(3))]);
        assert_eq!(told(&up), (HealthState::Ok, 5, Some(3)));
        assert!(up.is_ok() && up.error.is_none());
        let down = health(false, &[(5, None)]);
        assert_eq!(told(&down), (HealthState::Down, 5, None));
        assert_eq!(down.error.as_deref(), Some("n5: away"));
        assert!(!down.is_ok());
    }

    #[test]
    fn each_master_of_a_cluster_has_locks_of_its_own() {
        use HealthState::{Down, Ok, Partial};
        for (nodes, expected) in [
            ([(5, Some(3)), (9, Some(1)), (7, Some(2))], (Ok, 9, Some(3))),
            (
                [(5, Some(3)), (9, None), (7, Some(2))],
                (Partial, 9, Some(3)),
            ),
            // Since the first of them went.
            ([(5, None), (9, None), (7, Some(2))], (Partial, 5, Some(2))),
            // Since the last of them went.
            ([(5, None), (9, None), (7, None)], (Down, 9, None)),
        ] {
            assert_eq!(told(&health(false, &nodes)), expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_majority_of_a_quorum_is_enough() {
        use HealthState::{Down, Ok};
        for (nodes, expected) in [
            // Since the second of them came, with the answer of the faster two.
            ([(5, Some(3)), (9, Some(1)), (7, Some(2))], (Ok, 7, Some(2))),
            ([(5, Some(3)), (8, None), (9, Some(2))], (Ok, 9, Some(3))),
            // Since the second of them went.
            ([(5, None), (8, None), (9, Some(2))], (Down, 8, None)),
            ([(5, None), (8, None), (9, None)], (Down, 8, None)),
        ] {
            let health = health(true, &nodes);
            assert_eq!(told(&health), expected, "{nodes:?}");
            assert_eq!(health.error.is_none(), health.is_ok());
        }
    }

    #[test]
    fn silent_servers_are_listed_first_and_not_all_are_listed() {
        let mut nodes: Vec<_> = (0..100).map(|since| (since, Some(1))).collect();
        nodes.push((200, None));
        let health = health(false, &nodes);
        assert_eq!(health.nodes.len(), MOST_NODES);
        assert_eq!(health.nodes[0].node, "n200");
        assert!(health.nodes[1].is_ok());
        assert_eq!(health.state, HealthState::Partial);
    }
}
