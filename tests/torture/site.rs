//! What is tortured: the servers of one round, the proxies in front of them, and the resource that the locks guard.
//!
//! Another topology is another way to build a [`Site`], faults of its own, and the keys that it can lock; checks and
//! reports see only the URL and the keys.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tests::history::now_ns;
use tests::quorum::wait_until_it_counts;
use tests::{FaultProxy, RedisServer};
use tokio::runtime::Runtime;

use crate::clustered::Clustered;
use crate::keys;
use crate::replicated::Replicated;

/// What the locks live on.
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
}

impl Topology {
    pub(crate) const ALL: [Self; 5] = [
        Self::Single,
        Self::Sentinel,
        Self::Cluster,
        Self::Quorum,
        Self::Guarded,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
            Self::Guarded => "guarded",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// A server and the proxy through which clients reach it.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
}

/// Servers and proxies of one round.
pub(crate) struct Site {
    pub(crate) topology: Topology,
    /// One, or those of a quorum; none where clients are told by a sentinel where to go.
    pub(crate) nodes: Vec<Node>,
    /// What sentinels watch.
    pub(crate) replicated: Option<Replicated>,
    pub(crate) clustered: Option<Clustered>,
    pub(crate) resource: RedisServer,
}

impl Site {
    /// `durable`: every write is on disk before it is answered; `clients`: how many there will be at a time.
    pub(crate) fn build(
        topology: Topology,
        runtime: &Runtime,
        durable: bool,
        clients: usize,
    ) -> Self {
        let nodes = match topology {
            Topology::Single => 1,
            Topology::Sentinel | Topology::Cluster | Topology::Guarded => 0,
            Topology::Quorum => 3,
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
            Topology::Single | Topology::Cluster | Topology::Quorum => None,
        };
        Self {
            topology,
            nodes,
            replicated,
            clustered: (topology == Topology::Cluster).then(|| Clustered::start(runtime)),
            resource: RedisServer::start(),
        }
    }

    /// What the client in this place connects to.
    pub(crate) fn url(&self, place: usize) -> String {
        match (&self.replicated, &self.clustered) {
            (Some(replicated), _) => replicated.url(place),
            (_, Some(clustered)) => clustered.cluster.url(),
            (None, None) => {
                let urls: Vec<String> = self.nodes.iter().map(|node| node.proxy.url()).collect();
                urls.join(" ")
            }
        }
    }

    /// The master and what replicates it; only for faults of that topology.
    pub(crate) fn replicated(&mut self) -> &mut Replicated {
        self.replicated.as_mut().expect("a site with sentinels")
    }

    /// Until when the mutexes are held that are held now; not asked of a quorum.
    pub(crate) fn leases(&self) -> Vec<(&'static str, u64)> {
        let mut keys = keys::hot(self.topology);
        keys.retain(|key| {
            !keys::has_queue(key) && !keys::is_semaphore(key) && !keys::is_had_before_said(key)
        });
        let lease = |key: &'static str| {
            let [server] = self.servers(key)[..] else {
                return None;
            };
            // Beside another fault it may be dead or frozen.
            if !answers(server.addr(), Duration::from_millis(100)) {
                return None;
            }
            let left = u64::try_from(server.pttl(&format!("lock:{key}"))).ok()?;
            Some((key, now_ns() + left * 1_000_000))
        };
        keys.into_iter().filter_map(lease).collect()
    }

    /// Where a key may stand.
    fn servers(&self, key: &str) -> Vec<&RedisServer> {
        let nodes = self.nodes.iter().map(|node| &node.server);
        let master = self.replicated.as_ref().map(Replicated::master);
        let owner = self.clustered.as_ref().map(|site| site.master_of(key));
        nodes.chain(master).chain(owner).collect()
    }

    /// A key that somebody holds, and for how long, in milliseconds.
    pub(crate) fn held(&self) -> Option<(&'static str, i64)> {
        let locks = keys::all(self.topology).into_iter();
        locks
            .flat_map(|key| {
                self.servers(key)
                    .into_iter()
                    .map(move |server| (key, server))
            })
            .map(|(key, server)| (key, left(server, key)))
            .find(|(_, left)| *left != NOT_THERE)
    }

    /// Wake-ups that passed a proxy.
    pub(crate) fn messages(&self) -> u64 {
        self.nodes.iter().map(|node| node.proxy.messages()).sum()
    }

    /// Requests that were replaced on their way.
    pub(crate) fn rewrites(&self) -> u64 {
        self.nodes.iter().map(|node| node.proxy.rewrites()).sum()
    }
}

/// What `PTTL` says of a key that does not exist.
const NOT_THERE: i64 = -2;

/// For how long a lock is held still; of a semaphore, the permits that are longest.
fn left(server: &RedisServer, key: &str) -> i64 {
    if !keys::is_semaphore(key) {
        return server.pttl(&format!("lock:{key}"));
    }
    let leases = format!("{{lock:{key}}}:timeout");
    // The last permit, whose id is no text, and its score.
    let last: Vec<Vec<u8>> = server.query(&["ZRANGE", &leases, "-1", "-1", "WITHSCORES"]);
    let (seconds, micros): (i64, i64) = server.query(&["TIME"]);
    let score = last
        .get(1)
        .and_then(|score| std::str::from_utf8(score).ok());
    let ends = score.and_then(|score| score.parse::<f64>().ok());
    let left = ends.map_or(0, |at| at as i64 - (seconds * 1_000 + micros / 1_000));
    // What a dead one had taken stays until somebody looks.
    if left > 0 { left } else { NOT_THERE }
}

impl Node {
    fn start(runtime: &Runtime, durable: bool) -> Self {
        let conf = RedisServer::builder();
        let server = if durable { conf.appendonly() } else { conf }.start();
        let proxy = runtime.block_on(FaultProxy::start(server.addr()));
        Self { server, proxy }
    }

    /// What the server counted of one error's code.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let info: String = self.server.query(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        let mut lines = info.lines();
        lines
            .find_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok())
            .unwrap_or(0)
    }

    /// The id that the server's process gave itself.
    pub(crate) fn run_id(&self) -> String {
        let info: String = self.server.query(&["INFO", "server"]);
        let mut lines = info.lines();
        let id = lines.find_map(|line| line.strip_prefix("run_id:"));
        id.unwrap_or_default().to_owned()
    }
}

/// Whether something answers a PING there in time.
pub(crate) fn answers(addr: SocketAddr, within: Duration) -> bool {
    let ping = || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&addr, within)?;
        stream.set_read_timeout(Some(within))?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        stream.read(&mut [0; 16])
    };
    ping().is_ok_and(|read| read > 0)
}

/// Whether a plain `SET` is done there at once.
pub(crate) fn takes_writes(addr: SocketAddr, key: &str) -> bool {
    let within = Duration::from_millis(100);
    let set = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&addr, within)?;
        stream.set_read_timeout(Some(within))?;
        let length = key.len();
        write!(
            stream,
            "*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n$1\r\n1\r\n"
        )?;
        let mut reply = [0; 16];
        let read = stream.read(&mut reply)?;
        Ok(reply[..read].starts_with(b"+OK"))
    };
    set().unwrap_or(false)
}
