//! A Redis Cluster of real servers: masters, replicas, slots that move, masters that die.

mod moving;
mod view;

use std::time::{Duration, Instant};

use redis::{FromRedisValue, Value};

use crate::eventually::{eventually, eventually_within};
use crate::server::{Data, RedisServer};
use crate::tls::TlsFiles;
use view::View;
pub use view::{SLOTS, slot_of};

/// The time that a failover may take. It is longer than any other wait here, because a failover that finds no majority
/// is tried again.
const FAILOVER: Duration = Duration::from_secs(150);

/// The settings of a [`RedisCluster`]: three masters without replicas unless said otherwise.
#[derive(Debug, Clone)]
pub struct ClusterConf {
    masters: usize,
    replicas: bool,
    node_timeout: Option<Duration>,
    password: Option<String>,
    tls: Option<TlsFiles>,
    lines: Vec<String>,
}

impl ClusterConf {
    /// Sets the number of masters, which share the slots.
    #[must_use]
    pub fn masters(mut self, masters: usize) -> Self {
        self.masters = masters;
        self
    }

    /// Adds a replica for each master. The replica of node `i` is node `masters + i`.
    #[must_use]
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self
    }

    /// Sets the time of silence after which a node counts as dead. The default is 4 s with replicas, and a minute without:
    /// no replica takes over then, and on a busy machine a node may be silent for seconds, which must not take the
    /// cluster down.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Sets the password of every node. [`RedisCluster::url`] carries it.
    #[must_use]
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Makes the nodes speak TLS with each other, and with clients on a second port: see [`RedisCluster::tls_url`].
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Adds a line to every node's `redis.conf`.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts the nodes, and waits until each of them takes writes and knows who has which slot.
    pub async fn start(self) -> RedisCluster {
        RedisCluster::launch(self).await
    }

    fn silence(&self) -> Duration {
        let default = if self.replicas { 4_000 } else { 60_000 };
        self.node_timeout.unwrap_or(Duration::from_millis(default))
    }

    fn node(&self) -> RedisServer {
        let node_timeout = self.silence().as_millis();
        let mut conf = RedisServer::builder()
            .cluster_node()
            .line(format!("cluster-node-timeout {node_timeout}"))
            // A replica takes over however old its data are, and it stays with its master.
            .line("cluster-replica-validity-factor 0")
            .line("cluster-allow-replica-migration no")
            .line("repl-diskless-sync-delay 0");
        if let Some(files) = &self.tls {
            conf = conf
                .tls_by(files.clone())
                .line("tls-cluster yes")
                .line("tls-replication yes");
        }
        if let Some(password) = &self.password {
            conf = conf
                .requirepass(password)
                .line(format!("masterauth {password}"));
        }
        let lines = self.lines.iter();
        lines.fold(conf, |conf, line| conf.line(line)).start()
    }
}

/// The nodes of one cluster. All of them end with this value.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters that it began with, then their replicas in the same order.
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
    frozen: Vec<std::sync::atomic::AtomicBool>,
    conf: ClusterConf,
}

impl RedisCluster {
    /// Starts three masters without replicas.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns settings for a cluster.
    pub fn builder() -> ClusterConf {
        ClusterConf {
            masters: 3,
            replicas: false,
            node_timeout: None,
            password: None,
            tls: None,
            lines: Vec::new(),
        }
    }

    async fn launch(conf: ClusterConf) -> Self {
        let count = conf.masters * if conf.replicas { 2 } else { 1 };
        let nodes: Vec<_> = (0..count).map(|_| conf.node()).collect();
        let cluster = Self {
            ids: nodes
                .iter()
                .map(|node| node.query(&["CLUSTER", "MYID"]))
                .collect(),
            frozen: nodes.iter().map(|_| false.into()).collect(),
            nodes,
            conf,
        };
        cluster.share_the_slots();
        cluster.introduce().await;
        cluster.attach_the_replicas().await;
        cluster.settled().await;
        cluster.replicated().await;
        cluster
    }

    fn share_the_slots(&self) {
        let masters = self.conf.masters;
        let bound = |index: usize| (usize::from(SLOTS) * index / masters).to_string();
        for index in 0..masters {
            let last = usize::from(SLOTS) * (index + 1) / masters - 1;
            self.order(index, &["ADDSLOTSRANGE", &bound(index), &last.to_string()]);
            // Otherwise, the nodes would find out one after the other that they have the same epoch.
            self.order(index, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
    }

    /// Makes every node meet every other one: gossip alone would take seconds.
    async fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let [port, bus] = [node.port(), node.bus_port()].map(|port| port.to_string());
            for earlier in 0..index {
                self.order(earlier, &["MEET", "127.0.0.1", &port, &bus]);
            }
        }
        eventually("every node knows every other", async || {
            (0..self.nodes.len()).all(|index| {
                let known = self.view(index).0;
                known.len() == self.nodes.len() && !known.iter().any(|row| row.is("handshake"))
            })
        })
        .await;
    }

    async fn attach_the_replicas(&self) {
        for index in self.conf.masters..self.nodes.len() {
            self.order(index, &["REPLICATE", &self.ids[index - self.conf.masters]]);
        }
    }

    /// Waits until what is written at a master reaches its replica at once.
    pub async fn replicated(&self) {
        if !self.conf.replicas {
            return;
        }
        for (index, node) in self.nodes[..self.conf.masters].iter().enumerate() {
            let key = self.key_at(index, "probe");
            eventually("what is written reaches the replica", async || {
                let _: Value = node.query(&["SET", &key, "1"]);
                node.query::<i64>(&["WAIT", "1", "100"]) == 1
            })
            .await;
            let _: Value = node.query(&["DEL", &key]);
        }
    }

    /// Returns `redis-cluster://host:port,host:port`, with all nodes that the cluster began with.
    pub fn url(&self) -> String {
        let password = self.conf.password.iter();
        let login: String = password.map(|password| format!(":{password}@")).collect();
        self.url_with(&login, "")
    }

    /// Returns `rediss-cluster://localhost:port,…`. It needs [`ClusterConf::tls`].
    pub fn tls_url(&self) -> String {
        let host = |node: &RedisServer| format!("localhost:{}", node.tls_port());
        let hosts: Vec<_> = self.nodes.iter().map(host).collect();
        format!("rediss-cluster://{}", hosts.join(","))
    }

    /// Returns a URL with the text before the hosts (`user:password@`) and the text after them (`?…`).
    pub fn url_with(&self, login: &str, rest: &str) -> String {
        let hosts: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.addr().to_string())
            .collect();
        format!("redis-cluster://{login}{}{rest}", hosts.join(","))
    }

    /// Runs a command at a node, without following redirections. Panics on an error reply.
    pub fn query<T: FromRedisValue>(&self, node: usize, args: &[&str]) -> T {
        self.nodes[node].query(args)
    }

    /// Returns the slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        slot_of(key)
    }

    /// Returns the index of the master that has the slot, as most of the nodes that can be asked see it.
    pub fn owner_of(&self, slot: u16) -> usize {
        let asked = self.awake();
        let owners: Vec<_> = asked
            .iter()
            .filter_map(|node| self.owner_at(*node, slot))
            .collect();
        let votes = |owner: &usize| owners.iter().filter(|it| *it == owner).count();
        let most = owners.iter().copied().max_by_key(votes);
        most.unwrap_or_else(|| panic!("nobody has slot {slot}"))
    }

    /// Returns the index of the master that has the key's slot.
    pub fn owner_of_key(&self, key: &str) -> usize {
        self.owner_of(slot_of(key))
    }

    /// Returns the first of `stem0`, `stem1`, … whose slot this node has.
    pub fn key_at(&self, node: usize, stem: &str) -> String {
        let view = self.view(node);
        let port = self.nodes[node].port();
        (0_u32..)
            .map(|number| format!("{stem}{number}"))
            .find(|key| view.owner_of(slot_of(key)) == Some(port))
            .expect("a node with slots has keys")
    }

    /// Kills a node at once.
    pub fn kill9(&mut self, node: usize) {
        self.nodes[node].kill9();
    }

    /// Kills a master and waits until its replica has its slots. Returns the replica's index.
    pub async fn kill_master(&mut self, node: usize) -> usize {
        self.kill9(node);
        self.replaced(node).await
    }

    /// Starts a node again, with its place in the cluster, and waits until the cluster is well.
    pub async fn restart(&mut self, node: usize, data: Data) {
        self.nodes[node].restart(data);
        *self.frozen[node].get_mut() = false;
        self.settled().await;
    }

    /// Freezes a node: connections stay open and nothing is answered.
    pub fn pause(&self, node: usize) {
        self.frozen[node].store(true, std::sync::atomic::Ordering::SeqCst);
        self.nodes[node].sigstop();
    }

    /// Thaws a node.
    pub fn resume(&self, node: usize) {
        self.nodes[node].sigcont();
        self.frozen[node].store(false, std::sync::atomic::Ordering::SeqCst);
    }

    /// Sends `CLUSTER FAILOVER` to a replica of this master, so that no data are lost. Returns the new master's index.
    ///
    /// A replica that stood for election, whether it won or not, stands again only after four node timeouts.
    pub async fn failover(&self, node: usize) -> usize {
        let replica = self.replica_of(node);
        // The servers give up a failover after five seconds. A stalled machine can make one that late.
        let mut ordered: Option<Instant> = None;
        let bound = FAILOVER + 4 * self.conf.silence();
        eventually_within(bound, "a failover on demand", async || {
            if ordered.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
                self.order(replica, &["FAILOVER"]);
                ordered = Some(Instant::now());
            }
            !self.seems_master(node)
        })
        .await;
        self.replaced(node).await
    }

    /// Returns the index of a living replica of this master.
    pub fn replica_of(&self, node: usize) -> usize {
        let awake = self.awake();
        let is_its = |index: &usize| {
            let view = self.view(*index);
            let own = view.by_port(self.nodes[*index].port());
            own.is_some_and(|own| own.master.as_ref() == Some(&self.ids[node]))
        };
        let found = awake.into_iter().find(is_its);
        found.unwrap_or_else(|| panic!("node {node} has no replica"))
    }

    /// Waits until no node that can be asked gives this one a slot, and the cluster is well without it. Returns the
    /// index of the node that took over.
    pub async fn replaced(&self, node: usize) -> usize {
        eventually_within(FAILOVER, "another node takes over", async || {
            !self.seems_master(node)
        })
        .await;
        self.settled().await;
        self.partner_of(node)
    }

    /// Returns the replica of a master, or the master of a replica, by the roles at the start.
    pub fn partner_of(&self, node: usize) -> usize {
        let masters = self.conf.masters;
        if node < masters {
            node + masters
        } else {
            node - masters
        }
    }

    /// Waits until all nodes that can be asked take writes, and agree on who has which slot and who copies whom.
    pub async fn settled(&self) {
        eventually("the cluster is well, and its nodes agree", async || {
            let awake = self.awake();
            let ports: Vec<_> = awake.iter().map(|node| self.nodes[*node].port()).collect();
            let first = self.view(awake[0]);
            let shape = first.shape(&ports);
            shape.is_some()
                && first.covered() == usize::from(SLOTS)
                && awake
                    .iter()
                    .all(|node| self.is_well(*node) && self.view(*node).shape(&ports) == shape)
        })
        .await;
    }

    /// Waits until a node itself says that it serves, or that it does not. A master that is cut off stops after a
    /// while.
    pub async fn serves(&self, node: usize, serves: bool) {
        eventually("the node changes its mind", async || {
            self.is_ok(node) == serves
        })
        .await;
    }

    /// Returns the nodes that run and are not frozen.
    pub fn awake(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|node| {
                self.nodes[*node].is_running()
                    && !self.frozen[*node].load(std::sync::atomic::Ordering::SeqCst)
            })
            .collect()
    }

    /// Returns whether a node that can be asked gives this one a slot.
    fn seems_master(&self, node: usize) -> bool {
        let port = self.nodes[node].port();
        let has_slots = |view: View| view.by_port(port).is_some_and(|row| !row.slots.is_empty());
        self.awake()
            .into_iter()
            .any(|asked| has_slots(self.view(asked)))
    }

    /// Returns how many slots have a master, as this node sees it.
    pub fn covered(&self, node: usize) -> usize {
        self.view(node).covered()
    }

    /// Returns whether a node itself says that it has slots.
    pub fn has_slots(&self, node: usize) -> bool {
        let port = self.nodes[node].port();
        self.view(node)
            .by_port(port)
            .is_some_and(|own| !own.slots.is_empty())
    }

    fn is_ok(&self, node: usize) -> bool {
        let info: String = self.query(node, &["CLUSTER", "INFO"]);
        info.lines().any(|line| line == "cluster_state:ok")
    }

    fn is_well(&self, node: usize) -> bool {
        let role: Value = self.query(node, &["ROLE"]);
        // A replica that has no link yet would take over with the data that it has.
        let linked = match &role {
            Value::Array(role) if role.len() == 5 => {
                role[3] == Value::BulkString(b"connected".into())
            }
            _ => true,
        };
        linked && self.is_ok(node)
    }

    fn owner_at(&self, node: usize, slot: u16) -> Option<usize> {
        let port = self.view(node).owner_of(slot)?;
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn view(&self, node: usize) -> View {
        View::parse(&self.query::<String>(node, &["CLUSTER", "NODES"]))
    }

    /// Runs `CLUSTER …` at a node. Panics unless the answer is `OK`.
    fn order(&self, node: usize, args: &[&str]) {
        let said: String = self.query(node, &[&["CLUSTER"], args].concat());
        assert_eq!(said, "OK", "CLUSTER {args:?} at node {node}");
    }
}
