//! The site that is tortured: the servers of one round, the proxies in front of them, and the resource that the locks
//! guard.
//!
//! Another topology is another way to build a [`Site`], faults of its own, and the keys that it can lock; checks and
//! reports see only the URL and the keys.

use std::time::Duration;

use tests::history::now_ns;
use tests::judge::names;
use tests::quorum::wait_until_it_counts;
use tests::{Mariadb, Postgres, Protocol, RedisServer};
use tokio::runtime::Runtime;

use crate::clustered::Clustered;
use crate::database;
use crate::keys::Workload;
use crate::replicated::Replicated;
use crate::round::now_us;
use crate::server::{Database, Node, Server, answers};

/// The servers that the locks live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topology {
    /// One server.
    Single,
    /// A master, its replica, and a sentinel that fails over.
    Sentinel,
    /// Three masters that share the keys, with a replica each.
    Cluster,
    /// Three independent servers.
    Quorum,
    /// A master with two replicas and a sentinel, set up so that a failover forgets no lock: see `replicated.rs`.
    Guarded,
    /// A PostgreSQL server.
    Postgres,
    /// A MariaDB server.
    Mysql,
}

impl Topology {
    pub(crate) const ALL: [Self; 7] = [
        Self::Single,
        Self::Sentinel,
        Self::Cluster,
        Self::Quorum,
        Self::Guarded,
        Self::Postgres,
        Self::Mysql,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
            Self::Guarded => "guarded",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns whether the store tells waiters of releases. Otherwise they ask again and again.
    pub(crate) fn tells(self) -> bool {
        self != Self::Mysql
    }
}

/// The servers and proxies of one round.
pub(crate) struct Site {
    pub(crate) workload: Workload,
    /// The one Redis server, or those of a quorum. Other topologies have none here.
    pub(crate) nodes: Vec<Node>,
    /// The servers that sentinels watch.
    pub(crate) replicated: Option<Replicated>,
    pub(crate) clustered: Option<Clustered>,
    pub(crate) database: Option<Box<dyn Database>>,
    pub(crate) resource: RedisServer,
}

impl Site {
    /// Builds a site. With `durable`, every write is on disk before it is answered. `clients` is how many there will be
    /// at a time.
    pub(crate) fn build(
        workload: Workload,
        runtime: &Runtime,
        durable: bool,
        clients: usize,
    ) -> Self {
        let topology = workload.topology;
        let nodes = match topology {
            Topology::Single => 1,
            Topology::Quorum => 3,
            _ => 0,
        };
        let nodes: Vec<Node> = (0..nodes).map(|_| Node::start(runtime, durable)).collect();
        if topology == Topology::Quorum {
            for node in &nodes {
                runtime.block_on(wait_until_it_counts(&node.server));
            }
        }
        let replicated = match topology {
            Topology::Sentinel => Some(Replicated::start(runtime, clients)),
            Topology::Guarded => Some(Replicated::guarded(runtime, clients)),
            _ => None,
        };
        let database = match topology {
            Topology::Postgres => Some(database::start::<Postgres>(runtime, durable)),
            Topology::Mysql => Some(database::start::<Mariadb>(runtime, durable)),
            _ => None,
        };
        Self {
            workload,
            nodes,
            replicated,
            clustered: (topology == Topology::Cluster).then(|| Clustered::start(runtime)),
            database,
            resource: RedisServer::start(),
        }
    }

    /// Returns what the client in this place connects to.
    pub(crate) fn url(&self, place: usize) -> String {
        match (&self.replicated, &self.clustered, &self.database) {
            (Some(replicated), ..) => replicated.url(place),
            (_, Some(clustered), _) => clustered.cluster.url(),
            (.., Some(database)) => database.url(),
            (None, None, None) => {
                let urls: Vec<String> = self.nodes.iter().map(|node| node.proxy.url()).collect();
                urls.join(" ")
            }
        }
    }

    /// Returns the master and what replicates it. This is only for faults of that topology.
    pub(crate) fn replicated(&mut self) -> &mut Replicated {
        self.replicated.as_mut().expect("a site with sentinels")
    }

    /// Returns the database. This is only for sites that have one.
    pub(crate) fn database(&mut self) -> &mut dyn Database {
        self.database
            .as_deref_mut()
            .expect("a site with a database")
    }

    /// Returns one of the servers with a proxy of its own.
    pub(crate) fn server(&mut self, at: usize) -> &mut dyn Server {
        match &mut self.database {
            Some(database) => database.as_mut(),
            None => &mut self.nodes[at],
        }
    }

    /// Returns the servers with proxies of their own.
    fn proxied(&self) -> impl Iterator<Item = &dyn Server> {
        let nodes = self.nodes.iter().map(|node| node as &dyn Server);
        let database = self.database.iter();
        nodes.chain(database.map(|database| database.as_ref() as &dyn Server))
    }

    /// Returns until when the mutexes are held that are held now. A quorum is not asked.
    pub(crate) fn leases(&self) -> Vec<(&'static str, u64)> {
        let mut keys = self.workload.hot();
        keys.retain(|key| {
            !names::has_queue(key) && !names::is_semaphore(key) && !names::is_had_before_said(key)
        });
        if let Some(database) = &self.database {
            // Together with another fault, it may be dead or frozen.
            if !database.answers(Duration::from_millis(100)) {
                return Vec::new();
            }
            let (leases, now, now_us) = (database.leases(), now_ns(), now_us());
            let lease = |key: &'static str| {
                let (_, ends) = leases.iter().find(|(name, _)| name == key)?;
                Some((key, now + ends.saturating_sub(now_us) * 1_000))
            };
            return keys.into_iter().filter_map(lease).collect();
        }
        let lease = |key: &'static str| {
            let [server] = self.servers(key)[..] else {
                return None;
            };
            // Together with another fault, it may be dead or frozen.
            if !answers(Protocol::Redis, server.addr(), Duration::from_millis(100)) {
                return None;
            }
            let left = server.pttl_here(&format!("lock:{key}"))?;
            let left = u64::try_from(left).ok()?;
            Some((key, now_ns() + left * 1_000_000))
        };
        keys.into_iter().filter_map(lease).collect()
    }

    /// Returns the servers at which a key may stand.
    fn servers(&self, key: &str) -> Vec<&RedisServer> {
        let nodes = self.nodes.iter().map(|node| &node.server);
        let master = self.replicated.as_ref().map(Replicated::master);
        let owner = self.clustered.as_ref().map(|site| site.master_of(key));
        nodes.chain(master).chain(owner).collect()
    }

    /// Returns the keys that are held, and for how long, in milliseconds.
    pub(crate) fn held(&self) -> Vec<(String, i64)> {
        if let Some(database) = &self.database {
            let left = |ends: u64| i64::try_from(ends.saturating_sub(now_us()) / 1_000);
            let leases = database.leases().into_iter();
            return leases
                .map(|(key, ends)| (key, left(ends).unwrap_or(i64::MAX)))
                .collect();
        }
        let locks = self.workload.keys().into_iter();
        locks
            .flat_map(|key| {
                self.servers(key)
                    .into_iter()
                    .map(move |server| (key, server))
            })
            .map(|(key, server)| {
                let asked = answers(Protocol::Redis, server.addr(), Duration::from_secs(1));
                // The caller asks again, and reports it in the end.
                match asked.then(|| left(server, key)).flatten() {
                    Some(left) => (key.to_owned(), left),
                    None => (format!("{key}, whose server does not answer,"), 0),
                }
            })
            .filter(|(_, left)| *left != NOT_THERE)
            .collect()
    }

    /// Returns how many wake-ups passed a proxy, if there is one.
    pub(crate) fn messages(&self) -> Option<u64> {
        let messages = self.proxied().map(|server| server.proxy().messages());
        messages.reduce(|all, some| all + some)
    }

    /// Returns how many requests were replaced on their way.
    pub(crate) fn rewrites(&self) -> u64 {
        self.proxied().map(|server| server.proxy().rewrites()).sum()
    }
}

/// The answer of `PTTL` for a key that does not exist.
const NOT_THERE: i64 = -2;

/// Returns for how long a lock is still held. For a semaphore, the permits that last longest count. `None` if the server does
/// not say: it names another node of its cluster while a slot moves.
fn left(server: &RedisServer, key: &str) -> Option<i64> {
    if !names::is_semaphore(key) {
        return server.pttl_here(&format!("lock:{key}"));
    }
    let leases = format!("{{lock:{key}}}:timeout");
    // The answer is the last permit, whose id is no text, and its score.
    let last = server.command(&["ZRANGE", &leases, "-1", "-1", "WITHSCORES"]);
    let last: Vec<Vec<u8>> = redis::from_redis_value(last.ok()?).ok()?;
    let now = server.time_ms() as i64;
    let score = last
        .get(1)
        .and_then(|score| std::str::from_utf8(score).ok());
    let ends = score.and_then(|score| score.parse::<f64>().ok());
    let left = ends.map_or(0, |at| at as i64 - now);
    // Permits of a dead holder stay until somebody looks.
    Some(if left > 0 { left } else { NOT_THERE })
}
