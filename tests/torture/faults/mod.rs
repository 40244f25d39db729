//! What goes wrong, and the proof that it did.

mod clients;
mod cluster;
mod database;
mod failover;
mod majority;
mod network;
mod server;

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use tests::FaultProxy;

use crate::crew::Crew;
use crate::server::{Database, Node, Server};
use crate::site::{Site, Topology};
use crate::statements::Statement;

/// What a fault acts upon.
pub(crate) struct Scene<'a> {
    pub(crate) site: &'a mut Site,
    pub(crate) crew: &'a mut Crew,
    pub(crate) rng: &'a mut Rng,
    /// The node that is struck.
    pub(crate) at: usize,
    /// The statements that a planted bug changes. A fault that strikes one of many strikes one of these.
    pub(crate) broken: Vec<Statement>,
}

impl Scene<'_> {
    /// A Redis server.
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

/// Where a fault strikes. Two at once are of two sides, so that neither needs what the other has taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Network,
    Clients,
}

/// Something that goes wrong for a while.
pub(crate) trait Fault {
    /// What it is called, on the command line too.
    fn name(&self) -> &'static str;

    fn side(&self) -> Side;

    /// Whether locks may be gone from the store before their time: then holds may overlap, and the losers are told.
    fn loses_locks(&self, _topology: Topology) -> bool {
        false
    }

    /// Whether a server comes back without its data. That may end a hold of a quorum, and admits nobody else.
    fn forgets(&self) -> bool {
        false
    }

    /// By how much leases end too early: no overlap is longer.
    fn jumps(&self) -> Option<Duration> {
        None
    }

    /// Whether another server takes the place of the one that is struck.
    fn fails_over(&self) -> bool {
        false
    }

    /// Whether there may be two masters for a while, each with holders of its own.
    fn splits(&self) -> bool {
        false
    }

    /// Whether the server has to write everything to disk before it answers.
    fn needs_disk(&self) -> bool {
        false
    }

    /// Whether clients are told for good that they may not.
    fn denies(&self) -> bool {
        false
    }

    /// For how long it lasts, in milliseconds.
    fn lasts(&self) -> Range<u64>;

    fn begin(&mut self, scene: &mut Scene<'_>);

    /// Called every few milliseconds while it lasts.
    fn tick(&mut self, _scene: &mut Scene<'_>) {}

    /// Heals it. What proves that it struck, or why that is in doubt.
    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String>;

    /// The moment when the topology itself took a write again, where that takes a new master. None: the fault is over
    /// when it is healed.
    fn answered(&self) -> Option<u64> {
        None
    }

    /// Locks that nobody may give back any more, and when their leases are over.
    fn left_behind(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Whether waiters have to find out by themselves that a lock is free.
    fn loses_messages(&self) -> bool {
        false
    }

    /// The locks that it is about, if not all of them.
    fn affected(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Whether no holder of another lock may lose it.
    fn spares_the_others(&self) -> bool {
        false
    }
}

/// Fresh ones of every kind.
pub(crate) fn all(topology: Topology) -> Vec<Box<dyn Fault>> {
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
            if topology.tells() {
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

/// One by its name.
pub(crate) fn named(name: &str, topology: Topology) -> Option<Box<dyn Fault>> {
    all(topology).into_iter().find(|fault| fault.name() == name)
}

/// Two of different sides.
pub(crate) fn pair(rng: &mut Rng, topology: Topology) -> Vec<Box<dyn Fault>> {
    loop {
        let (mut first, mut second) = (all(topology), all(topology));
        let first = first.swap_remove(rng.usize(..first.len()));
        let second = second.swap_remove(rng.usize(..second.len()));
        // The server's own come first: they are begun before and healed after the other.
        if first.side() == Side::Server && second.side() != Side::Server
            || first.side() == Side::Network && second.side() == Side::Clients
        {
            return vec![first, second];
        }
    }
}

fn proven(it_is: bool, proof: String) -> Result<String, String> {
    if it_is { Ok(proof) } else { Err(proof) }
}
