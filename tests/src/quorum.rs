//! Several stores that keep locks together.

use std::time::Duration;

use lock_runtime::{LockManager, LockManagerBuilder, MemoryStore, QuorumNode};

use crate::eventually::{answered, eventually};
use crate::server::{Data, RedisServer};

/// The longest lease of a quorum of servers. It is short, because the servers are young when a test begins.
pub const LONGEST_LEASE: Duration = Duration::from_secs(2);

/// The nodes of a quorum, which belong to one test.
#[derive(Debug)]
pub enum Quorum {
    /// Memory stores in this process.
    Memory(Vec<MemoryStore>),
    /// Server processes.
    Redis(Vec<RedisServer>),
}

impl Quorum {
    /// Makes a quorum of `nodes` memory stores.
    pub fn memory(nodes: usize) -> Self {
        Self::Memory((0..nodes).map(|_| MemoryStore::new()).collect())
    }

    /// Starts `nodes` servers, and waits until they are old enough to have a vote.
    pub async fn redis(nodes: usize) -> Self {
        Self::aged(nodes, LONGEST_LEASE).await
    }

    /// Starts `nodes` servers, and waits until they are old enough to have a vote with this longest lease.
    pub async fn aged(nodes: usize, longest_lease: Duration) -> Self {
        let servers: Vec<_> = (0..nodes).map(|_| RedisServer::start()).collect();
        for server in &servers {
            wait_until_older(server, longest_lease).await;
        }
        Self::Redis(servers)
    }

    /// Connects a further manager, which is a stranger to the others, like another process.
    pub async fn manager(&self) -> LockManager {
        self.connect(self.builder()).await
    }

    /// Returns settings for managers of this quorum.
    pub fn builder(&self) -> LockManagerBuilder {
        match self {
            Self::Memory(_) => LockManager::builder(),
            Self::Redis(_) => crate::builder()
                .lease(LONGEST_LEASE)
                .longest_lease(LONGEST_LEASE),
        }
    }

    /// Connects a manager with settings.
    pub async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        let connecting = answered(async || builder.clone().quorum(self.nodes()).await);
        connecting.await.expect("a manager on the quorum")
    }

    /// Returns the nodes as a builder takes them.
    pub fn nodes(&self) -> Vec<QuorumNode> {
        match self {
            Self::Memory(stores) => stores.iter().map(QuorumNode::from).collect(),
            Self::Redis(servers) => servers.iter().map(|it| it.url().into()).collect(),
        }
    }

    /// Returns a server's URL.
    pub fn url(&self, node: usize) -> String {
        self.server(node).url()
    }

    /// Returns one of the servers.
    pub fn server(&self, node: usize) -> &RedisServer {
        &self.servers()[node]
    }

    /// Returns all of the servers.
    pub fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Memory(_) => panic!("a quorum of memory stores has no servers"),
            Self::Redis(servers) => servers,
        }
    }

    /// Kills a server at once.
    pub fn kill9(&mut self, node: usize) {
        self.server_mut(node).kill9();
    }

    /// Starts a server again, without its data.
    pub fn restart_empty(&mut self, node: usize) {
        self.server_mut(node).restart(Data::Lost);
    }

    fn server_mut(&mut self, node: usize) -> &mut RedisServer {
        match self {
            Self::Memory(_) => panic!("a quorum of memory stores has no servers"),
            Self::Redis(servers) => &mut servers[node],
        }
    }

    /// Makes a node lose every key without a restart.
    pub fn forget(&self, node: usize) {
        match self {
            Self::Memory(stores) => stores[node].clear(),
            Self::Redis(servers) => servers[node].flushall(),
        }
    }

    /// Returns at how many servers something holds the lock of that name.
    pub fn votes(&self, name: &str) -> usize {
        let key = format!("lock:{name}");
        let servers = self.servers().iter();
        servers.filter(|server| server.exists(&key)).count()
    }

    /// Returns whether no server has a client.
    pub fn is_deserted(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(servers) => servers.iter().all(|server| server.clients().is_empty()),
        }
    }

    /// Waits until no node has a lock.
    pub async fn assert_clean(&self) {
        match self {
            Self::Memory(stores) => {
                eventually("no lock is held any more", async || {
                    stores.iter().all(|store| store.held() == 0)
                })
                .await;
            }
            Self::Redis(servers) => {
                for server in servers {
                    server.assert_clean().await;
                }
            }
        }
    }
}

/// Waits until a server that has just started is older than the longest lease. Until then, it counts as down.
pub async fn wait_until_it_counts(server: &RedisServer) {
    wait_until_older(server, LONGEST_LEASE).await;
}

/// Waits until a server is older than a longest lease.
pub async fn wait_until_older(server: &RedisServer, longest_lease: Duration) {
    // Seen from outside, the age is uncertain by a second for each end of the uptime, and by the drift of clocks.
    let age = longest_lease.as_secs() + 2;
    eventually("the server is old enough", async || {
        let info: String = server.query(&["INFO", "server"]);
        let uptime = info
            .lines()
            .find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.is_some_and(|uptime| uptime.trim().parse::<u64>().is_ok_and(|up| up >= age))
    })
    .await;
}
