//! What the clients fight for, and how.

use crate::site::Topology;

/// How a task takes its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Mutex,
    /// A mutex that is now and then kept for longer than a lease, so that only renewals keep it.
    Long,
    Fair,
    Read,
    Write,
    /// One permit or two.
    Permits,
    /// All of its keys, or none.
    Multi,
    /// Without ever waiting.
    Try,
    /// A mutex that stays with its process for a while; taken in a row, with or without waiting, and then left alone.
    Keep,
}

/// What one task of a client does again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) how: How,
    pub(crate) keys: &'static [&'static str],
}

const MUTEXES: [Work; 11] = [
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Mutex, &["hot-3"]),
    work(How::Mutex, &["hot-3"]),
    work(How::Mutex, &["hot-4"]),
    work(How::Mutex, &["hot-4"]),
    work(How::Long, &["long-1"]),
    work(How::Long, &["long-2"]),
];

/// Locks that processes keep. A key has one task in a process, which finds it kept; others have to ask for it.
const KEPT: [Work; 3] = [
    work(How::Keep, &["keep-1"]),
    work(How::Keep, &["keep-2"]),
    work(How::Keep, &["keep-2"]),
];

/// The fair locks.
pub(crate) const FAIR: &[&str] = &["fair-1"];

/// The last lock of a set, which is wanted by itself, too.
const LAST_OF_A_SET: &str = "multi-2";

const OTHER_KINDS: [Work; 7] = [
    work(How::Read, &["rw-1"]),
    work(How::Read, &["rw-1"]),
    work(How::Write, &["rw-1"]),
    work(How::Permits, &["sem-1"]),
    work(How::Multi, &["multi-1", LAST_OF_A_SET]),
    work(How::Mutex, &[LAST_OF_A_SET]),
    // One of a process only: a second one would be refused because the first one asks, and not by a holder.
    work(How::Try, &["try-1"]),
];

const fn work(how: How, keys: &'static [&'static str]) -> Work {
    Work { how, keys }
}

/// The tasks of each client.
pub(crate) fn of_tasks(topology: Topology) -> Vec<Work> {
    let mut tasks = MUTEXES.to_vec();
    if topology != Topology::Quorum {
        tasks.push(work(How::Fair, FAIR));
    }
    if matches!(
        topology,
        Topology::Single | Topology::Sentinel | Topology::Cluster
    ) {
        tasks.extend(KEPT);
    }
    if matches!(
        topology,
        Topology::Single | Topology::Cluster | Topology::Postgres | Topology::Mysql
    ) {
        tasks.extend(OTHER_KINDS);
    }
    tasks
}

/// All keys.
pub(crate) fn all(topology: Topology) -> Vec<&'static str> {
    let tasks = of_tasks(topology).into_iter();
    let mut all: Vec<_> = tasks.flat_map(|work| work.keys).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Keys that are always wanted and never kept for long: how soon one is held again tells how soon a fault is over.
pub(crate) fn hot(topology: Topology) -> Vec<&'static str> {
    let mut all = all(topology);
    all.retain(|key| !key.starts_with("long") && !key.starts_with("keep"));
    all
}

/// Locks that somebody waits for all the time, and that nobody leaves to their leases unless something goes wrong.
pub(crate) fn wanted_in_peace(topology: Topology) -> Vec<&'static str> {
    let mut wanted = all(topology);
    wanted.retain(|key| key.starts_with("hot") || FAIR.contains(key) || *key == LAST_OF_A_SET);
    wanted
}

/// Mutexes for which several tasks of each client wait all the time.
pub(crate) fn wanted(topology: Topology) -> Vec<&'static str> {
    let mut wanted = all(topology);
    wanted.retain(|key| key.starts_with("hot"));
    wanted
}

/// Locks of several kinds that every client takes from the beginning on.
pub(crate) fn used_from_the_start(topology: Topology) -> Vec<&'static str> {
    let mut all = all(topology);
    all.retain(|key| {
        let kinds = ["hot", "long", "fair", "rw"];
        kinds.iter().any(|kind| key.starts_with(kind))
    });
    all
}

/// Places in fair queues and marks of waiting writers outlive their owners by more than a lease.
pub(crate) fn has_queue(key: &str) -> bool {
    key.starts_with("fair") || key.starts_with("rw")
}

/// Only sets of several locks begin with this one: taken one by one, it is had while the next one is still waited for,
/// and its holder says so when it has all.
pub(crate) fn is_had_before_said(key: &str) -> bool {
    key == "multi-1"
}

/// The permits of a semaphore.
pub(crate) const PERMITS: u64 = 3;

/// What a writer takes of a key's [`room`]: all.
pub(crate) const WRITER: u64 = 1_000;

/// How much of a shared key can be held at a time: readers take 1 each.
pub(crate) fn room(key: &str) -> u64 {
    if is_semaphore(key) { PERMITS } else { WRITER }
}

pub(crate) fn is_semaphore(key: &str) -> bool {
    key.starts_with("sem")
}
