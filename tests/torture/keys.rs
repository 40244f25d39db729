//! The keys that the clients contend for, and how they take them.

use tests::judge::names::is_kept;
use tests::workload::{How, Work};

use crate::site::Topology;

/// The tasks that the clients have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// All tasks that the topology has.
    All,
    Hot,
    Lone,
    Long,
    Fair,
    ReadWrite,
    Permits,
    Sets,
    Kept,
    /// Mutexes alone, of which every library has some.
    Mutexes,
}

impl Tasks {
    const EACH: [Self; 10] = [
        Self::All,
        Self::Hot,
        Self::Lone,
        Self::Long,
        Self::Fair,
        Self::ReadWrite,
        Self::Permits,
        Self::Sets,
        Self::Kept,
        Self::Mutexes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hot => "hot",
            Self::Lone => "lone",
            Self::Long => "long",
            Self::Fair => "fair",
            Self::ReadWrite => "read-write",
            Self::Permits => "permits",
            Self::Sets => "sets",
            Self::Kept => "kept",
            Self::Mutexes => "mutexes",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|it| it.name() == name)
    }
}

/// Mutexes that several tasks of each client want all the time.
const HOT: [Work; 9] = [
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Mutex, &["hot-3"]),
    work(How::Mutex, &["hot-3"]),
    work(How::Mutex, &["hot-4"]),
    work(How::Mutex, &["hot-4"]),
];

/// Mutexes that one task of each client wants. No other task hands the lock over to it.
const LONE: [Work; 12] = [
    work(How::Mutex, &["lone-1"]),
    work(How::Mutex, &["lone-2"]),
    work(How::Mutex, &["lone-3"]),
    work(How::Mutex, &["lone-4"]),
    work(How::Mutex, &["lone-5"]),
    work(How::Mutex, &["lone-6"]),
    work(How::Mutex, &["lone-7"]),
    work(How::Mutex, &["lone-8"]),
    work(How::Mutex, &["lone-9"]),
    work(How::Mutex, &["lone-10"]),
    work(How::Mutex, &["lone-11"]),
    work(How::Mutex, &["lone-12"]),
];

const LONG: [Work; 6] = [
    work(How::Long, &["long-1"]),
    work(How::Long, &["long-2"]),
    work(How::Long, &["long-3"]),
    work(How::Long, &["long-4"]),
    work(How::Long, &["long-5"]),
    work(How::Long, &["long-6"]),
];
/// The number of these tasks beside other tasks.
const FEW_LONG: usize = 2;
/// The number of [`LONE`] tasks beside other tasks. Where there is a waiting list, messages grant them the lock.
const FEW_LONE: usize = 3;

/// Locks that processes keep. Others have to ask for them. The last entry is different: each client has a lock that
/// nobody else uses.
const KEPT: [Work; 5] = [
    work(How::Keep, &["keep-1"]),
    work(How::Keep, &["keep-2"]),
    work(How::Keep, &["keep-2"]),
    work(How::Keep, &["keep-3"]),
    work(How::Keep, &["keep-own-1", "keep-own-2", "keep-own-3"]),
];

/// More of the locks that nobody else uses. Only these go from turn to turn for as long as they are kept.
const OWN: [Work; 4] = [
    work(How::Keep, &["keep-own-a1", "keep-own-a2", "keep-own-a3"]),
    work(How::Keep, &["keep-own-b1", "keep-own-b2", "keep-own-b3"]),
    work(How::Keep, &["keep-own-c1", "keep-own-c2", "keep-own-c3"]),
    work(How::Keep, &["keep-own-d1", "keep-own-d2", "keep-own-d3"]),
];

/// Mutexes that are held shortly, for longer than a lease, and to the end of a lease.
const MUTEXES: [Work; 8] = [
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-1"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Mutex, &["hot-2"]),
    work(How::Long, &["long-1"]),
    work(How::Long, &["long-2"]),
    work(How::Long, &["long-3"]),
    work(How::Whole, &["whole-1"]),
];

/// The fair locks.
pub(crate) const FAIR: &[&str] = &["fair-1"];

const QUEUE: [Work; 3] = [work(How::Fair, FAIR); 3];

const READ_WRITE: [Work; 3] = [
    work(How::Read, &["rw-1"]),
    work(How::Read, &["rw-1"]),
    work(How::Write, &["rw-1"]),
];

const PERMITTED: [Work; 3] = [work(How::Permits, &["sem-1"]); 3];

/// The last lock of a set, which is also wanted by itself.
const LAST_OF_A_SET: &str = "multi-2";

const SETS: [Work; 2] = [
    work(How::Multi, &["multi-1", LAST_OF_A_SET]),
    work(How::Mutex, &[LAST_OF_A_SET]),
];

/// A process has only one of these: a second one would be refused because the first one asks, and not because of a
/// holder.
const TRIED: Work = work(How::Try, &["try-1"]);

const fn work(how: How, keys: &'static [&'static str]) -> Work {
    Work { how, keys }
}

/// The number of holds of each client before the first fault, and for a round to count.
const WARM: u64 = 30;
/// The same before the first fault if another library is asked, which may ask again only after long pauses.
const FEW: u64 = 3;

/// A key, and a way in which it is taken.
pub(crate) type Way = (&'static str, How);

/// The work of the clients of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) topology: Topology,
    pub(crate) tasks: Tasks,
}

impl Workload {
    /// Returns the work on everything that the topology can lock.
    pub(crate) const fn all_of(topology: Topology) -> Self {
        let tasks = Tasks::All;
        Self { topology, tasks }
    }

    fn tasks(self) -> Vec<Work> {
        match self.tasks {
            Tasks::All => all_tasks(self.topology),
            Tasks::Hot => HOT.to_vec(),
            Tasks::Lone => LONE.to_vec(),
            Tasks::Long => LONG.to_vec(),
            Tasks::Fair => QUEUE.to_vec(),
            Tasks::ReadWrite => READ_WRITE.to_vec(),
            Tasks::Permits => PERMITTED.to_vec(),
            // Beside other tasks that want one of its locks, a process would take them one by one.
            Tasks::Sets => SETS[..1].to_vec(),
            Tasks::Kept => [&KEPT[..], &OWN].concat(),
            Tasks::Mutexes => MUTEXES.to_vec(),
        }
    }

    /// Returns the tasks of the client with that number.
    pub(crate) fn tasks_of(self, client: usize) -> Vec<Work> {
        let mut tasks = self.tasks();
        for work in tasks.iter_mut().filter(|work| work.how == How::Keep) {
            let own = client % work.keys.len();
            work.keys = &work.keys[own..=own];
        }
        tasks
    }

    /// Returns what the keys are, in words.
    pub(crate) fn kinds(self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for kind in self.tasks().iter().map(|work| work.how.name()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Returns all keys.
    pub(crate) fn keys(self) -> Vec<&'static str> {
        let tasks = self.tasks().into_iter();
        let mut keys: Vec<_> = tasks.flat_map(|work| work.keys).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the ways in which each key is taken.
    pub(crate) fn ways(self) -> Vec<Way> {
        let mut ways = Vec::new();
        for work in self.tasks() {
            for way in work.keys.iter().map(|key| (*key, work.how)) {
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        ways
    }

    /// Returns the keys that are always wanted and never held for long. How soon one is held again tells how soon a
    /// fault is over.
    pub(crate) fn hot(self) -> Vec<&'static str> {
        let mut hot = self.keys();
        let lasting = ["long", "whole"];
        hot.retain(|key| !lasting.iter().any(|kind| key.starts_with(kind)) && !is_kept(key));
        hot
    }

    /// Returns the locks that somebody waits for all the time, and that nobody leaves to their leases unless something
    /// goes wrong.
    pub(crate) fn wanted_in_peace(self) -> Vec<&'static str> {
        let mut wanted = self.keys();
        wanted.retain(|key| {
            let always = ["hot", "lone"];
            always.iter().any(|kind| key.starts_with(kind))
                || FAIR.contains(key)
                || *key == LAST_OF_A_SET
        });
        wanted
    }

    /// Returns the mutexes for which several tasks of each client wait all the time.
    pub(crate) fn wanted(self) -> Vec<&'static str> {
        let mut wanted = self.keys();
        wanted.retain(|key| key.starts_with("hot"));
        wanted
    }

    /// Returns locks of several kinds that every client takes from the beginning on.
    pub(crate) fn used_from_the_start(self) -> Vec<&'static str> {
        let mut keys = self.keys();
        keys.retain(|key| {
            let kinds = ["hot", "long", "fair", "rw"];
            kinds.iter().any(|kind| key.starts_with(kind))
        });
        keys
    }

    /// Returns whether the first fault may begin when the clients have had these numbers of holds. If some of the tasks
    /// stay away, a few locks are contended for, which one client may have for long.
    pub(crate) fn is_warm(self, holds: &[u64]) -> bool {
        match self.tasks {
            Tasks::All => holds.iter().all(|holds| *holds >= WARM),
            Tasks::Mutexes => holds.iter().all(|holds| *holds >= FEW),
            _ => holds.iter().any(|holds| *holds > 0),
        }
    }

    /// Returns the least number of operations for a round to count.
    pub(crate) fn least_operations(self, clients: usize) -> u64 {
        match self.tasks {
            Tasks::All => 2 * WARM * clients as u64,
            _ => clients as u64,
        }
    }
}

/// Returns one task or some of each kind that the topology has.
fn all_tasks(topology: Topology) -> Vec<Work> {
    let mut tasks = HOT.to_vec();
    tasks.extend(&LONG[..FEW_LONG]);
    if topology != Topology::Quorum {
        tasks.push(QUEUE[0]);
    }
    if matches!(
        topology,
        Topology::Single | Topology::Sentinel | Topology::Cluster
    ) {
        tasks.extend(KEPT);
    }
    if matches!(topology, Topology::Single | Topology::Sentinel) {
        tasks.extend(&LONE[..FEW_LONE]);
    }
    if matches!(
        topology,
        Topology::Single | Topology::Cluster | Topology::Postgres | Topology::Mysql
    ) {
        tasks.extend(READ_WRITE);
        tasks.push(PERMITTED[0]);
        tasks.extend(SETS);
        tasks.push(TRIED);
    }
    tasks
}
