//! The faults, and the proofs that they struck.

mod clients;
mod cluster;
mod database;
mod failover;
mod majority;
mod network;
mod server;

use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::FaultProxy;

use crate::crew::Crew;
use crate::server::{Database, Node, Server};
use crate::site::{Site, Topology};
use crate::statements::Statement;

/// The parts of a round that a fault acts upon.
pub(crate) struct Scene<'a> {
    pub(crate) site: &'a mut Site,
    pub(crate) crew: &'a mut Crew,
    pub(crate) rng: &'a mut Rng,
    /// The node that is struck.
    pub(crate) at: usize,
    /// The statements that a planted bug changes. A fault that strikes one of many statements strikes one of these.
    pub(crate) broken: Vec<Statement>,
}

impl Scene<'_> {
    /// Returns the Redis server that is struck.
    fn node(&mut self) -> &mut Node {
        &mut self.site.nodes[self.at]
    }

    fn server(&mut self) -> &mut dyn Server {
        self.site.server(self.at)
    }

    fn proxy(&mut self) -> &FaultProxy {
        self.site.server(self.at).proxy()
    }

    fn database(&mut self) -> &mut dyn Database {
        self.site.database()
    }
}

/// The side on which a fault strikes. Two faults at once are of two sides, so that neither needs what the other has
/// taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Network,
    Clients,
}

/// Something that goes wrong for a while.
pub(crate) trait Fault {
    /// Returns its name, which the command line also takes.
    fn name(&self) -> &'static str;

    fn side(&self) -> Side;

    /// Returns whether locks may be gone from the store before their time. Then holds may overlap, and the losers are
    /// told.
    fn loses_locks(&self, _topology: Topology) -> bool {
        false
    }

    /// Returns whether a server comes back without its data. That may end a hold of a quorum, but it admits nobody
    /// else.
    fn forgets(&self) -> bool {
        false
    }

    /// Returns by how much leases end too early. No overlap is longer.
    fn jumps(&self) -> Option<Duration> {
        None
    }

    /// Returns whether another server takes the place of the one that is struck.
    fn fails_over(&self) -> bool {
        false
    }

    /// Returns whether there may be two masters for a while, each with holders of its own.
    fn splits(&self) -> bool {
        false
    }

    /// Returns whether the server has to write everything to disk before it answers.
    fn needs_disk(&self) -> bool {
        false
    }

    /// Returns whether clients get the final answer that they have no right.
    fn denies(&self) -> bool {
        false
    }

    /// Returns how long it lasts, in milliseconds.
    fn lasts(&self) -> Range<u64>;

    fn begin(&mut self, scene: &mut Scene<'_>);

    /// Runs every few milliseconds while the fault lasts.
    fn tick(&mut self, _scene: &mut Scene<'_>) {}

    /// Heals it. Returns what proves that it struck, or why that is in doubt.
    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String>;

    /// Returns the moment when the topology itself took a write again, if that takes a new master. `None` means that
    /// the fault is over when it is healed.
    fn answered(&self) -> Option<u64> {
        None
    }

    /// Returns the locks that nobody may give back any more, and when their leases are over.
    fn left_behind(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Returns whether waiters have to find out by themselves that a lock is free.
    fn loses_messages(&self) -> bool {
        false
    }

    /// Returns the locks that it is about, if not all of them.
    fn affected(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Returns whether no holder of another lock may lose it.
    fn spares_the_others(&self) -> bool {
        false
    }
}

/// Returns new faults of every kind.
pub(crate) fn all(topology: Topology) -> Vec<Box<dyn Fault>> {
    of(topology, topology.tells())
}

/// Returns new faults of every kind that can happen to clients that listen, or to others.
pub(crate) fn of(topology: Topology, listen: bool) -> Vec<Box<dyn Fault>> {
    let mut all = match topology {
        Topology::Sentinel => failover::all(false),
        Topology::Guarded => failover::all(true),
        Topology::Cluster => cluster::all(),
        Topology::Single | Topology::Quorum | Topology::Postgres | Topology::Mysql => {
            let mut all = server::all();
            all.extend(match topology {
                Topology::Postgres | Topology::Mysql => database::all(),
                _ => server::of_redis(),
            });
            all.extend(network::all());
            if listen {
                all.extend(server::of_listeners());
                all.extend(network::of_messages());
            }
            all
        }
    };
    if topology == Topology::Quorum {
        all.extend(majority::all());
    }
    all.extend(clients::all());
    all
}

/// Returns the fault of this name.
pub(crate) fn named(name: &str, topology: Topology) -> Option<Box<dyn Fault>> {
    all(topology).into_iter().find(|fault| fault.name() == name)
}

/// Returns two faults of different sides.
pub(crate) fn pair(rng: &mut Rng, topology: Topology) -> Vec<Box<dyn Fault>> {
    loop {
        let (mut first, mut second) = (all(topology), all(topology));
        let first = first.swap_remove(rng.usize(..first.len()));
        let second = second.swap_remove(rng.usize(..second.len()));
        // Faults of the server come first, then those of the network, and those of clients last. The first one begins
        // before the other, and is healed while the other lasts: its recovery meets the second fault, which would not
        // be so the other way round. And what proves a fault needs what the sides before it take away: a lost reply a
        // server that answers, a client in the place of a killed one a way to the server.
        if first.side() == Side::Server && second.side() != Side::Server
            || first.side() == Side::Network && second.side() == Side::Clients
        {
            return vec![first, second];
        }
    }
}

/// Lets a fault go on until it has struck, for two seconds at most.
fn until_struck<F: Fault>(fault: &mut F, scene: &mut Scene<'_>, has_struck: impl Fn(&F) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while !has_struck(fault) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
        fault.tick(scene);
    }
}

fn proven(it_is: bool, proof: String) -> Result<String, String> {
    if it_is { Ok(proof) } else { Err(proof) }
}
