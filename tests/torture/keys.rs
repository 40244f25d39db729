//! The keys that are fought for. What a key is called says what is done with it.

use crate::site::Topology;

/// The key of each task of a client.
pub(crate) fn of_tasks(topology: Topology) -> Vec<&'static str> {
    let mutexes = [
        "hot-1", "hot-1", "hot-1", "hot-2", "hot-2", "long-1", "long-2",
    ];
    match topology {
        Topology::Quorum => mutexes.to_vec(),
        Topology::Single | Topology::Sentinel => [&mutexes[..], &["fair-1"]].concat(),
    }
}

/// All of them.
pub(crate) fn all(topology: Topology) -> Vec<&'static str> {
    let mut all = of_tasks(topology);
    all.sort_unstable();
    all.dedup();
    all
}

/// Keys that are always wanted and never kept for long: how soon one is held again tells how soon a fault is over.
pub(crate) fn hot(topology: Topology) -> Vec<&'static str> {
    let mut all = all(topology);
    all.retain(|key| key.starts_with("hot") || is_fair(key));
    all
}

pub(crate) fn is_fair(key: &str) -> bool {
    key.starts_with("fair")
}

pub(crate) fn is_long(key: &str) -> bool {
    key.starts_with("long")
}
