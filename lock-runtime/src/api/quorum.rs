//! Building a manager on a quorum: which stores may be its nodes, and connecting to a majority of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::api::builder::LockManagerBuilder;
use crate::api::manager::{LockManager, events_of};
use crate::backend::EventSink;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::quorum::{Node, QuorumBackend};
use crate::hold::lifecycle::current_runtime;
use crate::renew::Watch;
use crate::values::error::LockError;
use crate::values::options::{Options, config};
use crate::values::ttl::Ttl;

/// How long a node counts as down after a restart, unless the builder says otherwise.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// One store of a quorum: a Redis server by its URL, or a memory store.
///
/// URLs are those of [`LockManagerBuilder::connect`] for single servers, and `memory://`. `Debug` shows no password.
#[derive(Clone)]
pub struct QuorumNode(Place);

#[derive(Clone)]
enum Place {
    Url(String),
    Memory(MemoryStore),
}

impl From<&str> for QuorumNode {
    fn from(url: &str) -> QuorumNode {
        QuorumNode::from(url.to_owned())
    }
}

impl From<String> for QuorumNode {
    fn from(url: String) -> QuorumNode {
        QuorumNode(match url.strip_prefix("memory://") {
            Some("") => Place::Memory(MemoryStore::new()),
            Some(name) => Place::Memory(MemoryStore::named(name)),
            None => Place::Url(url),
        })
    }
}

impl From<&String> for QuorumNode {
    fn from(url: &String) -> QuorumNode {
        QuorumNode::from(url.clone())
    }
}

impl From<&MemoryStore> for QuorumNode {
    fn from(store: &MemoryStore) -> QuorumNode {
        QuorumNode(Place::Memory(store.clone()))
    }
}

impl From<MemoryStore> for QuorumNode {
    fn from(store: MemoryStore) -> QuorumNode {
        QuorumNode(Place::Memory(store))
    }
}

impl fmt::Debug for QuorumNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Place::Url(_) => "QuorumNode(url)",
            Place::Memory(_) => "QuorumNode(memory)",
        })
    }
}

impl LockManagerBuilder {
    /// Connects to several independent stores that keep locks together, as in Redis's Redlock: a lock is held by
    /// the client that has it at more than half of them, so it outlives the loss of a minority.
    ///
    /// ```
    /// use lock_runtime::{LockManager, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// // or URLs: ["redis://a/", "redis://b/", "redis://c/"]
    /// let nodes = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()];
    /// let locks = LockManager::builder().quorum(&nodes).await?;
    /// let guard = locks.mutex("report").acquire().await?;
    /// assert_eq!(guard.fencing_token(), None);
    /// # guard.release().await
    /// # }
    /// ```
    ///
    /// The nodes must share nothing: replicas of each other are one store. Their number is odd: a fourth node would
    /// not let a second one fail.
    ///
    /// - Only [`mutex`](LockManager::mutex), and several of them by [`multi`](LockManager::multi). Requests for other
    ///   kinds are refused with [`LockError::InvalidConfig`] before any I/O.
    /// - **No fencing tokens**: a guard's is `None`, whatever [`fencing`](Self::fencing) says.
    /// - A lease counts from before the first node was asked, less 1 % (10 ms at least) for the drift of clocks.
    ///   A node has a tenth of the lease to answer, or the call timeout if that is less.
    /// - A node that restarted counts as down, for new acquisitions, until it has run for the
    ///   [`longest_lease`](Self::longest_lease), by default 1 min: it may have forgotten holds that others still
    ///   believe in. That includes nodes that were started just now. Every manager of a quorum must set the same one.
    ///   Redis servers show their restarts by `INFO`; memory stores do not restart.
    /// - [`lazy`](Self::lazy) connects in the background. Otherwise a majority must be reachable now; the rest may
    ///   come later.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] and [`LockError::InvalidLease`] before any I/O: no nodes, an even number of them,
    /// one that is named twice, a URL that is no single store's. Then, as [`connect`](Self::connect),
    /// [`LockError::Unavailable`] if a majority of the nodes does not answer; [`LockError::Denied`] and
    /// [`LockError::InvalidConfig`] if any node refuses for good, or if two of them are one server. If they come to be one
    /// later, the second counts as away for as long as that lasts.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn quorum<N: Into<QuorumNode>>(
        self,
        nodes: impl IntoIterator<Item = N>,
    ) -> Result<LockManager, LockError> {
        let nodes: Vec<QuorumNode> = nodes.into_iter().map(Into::into).collect();
        let mut options = self.options;
        let longest = *options.longest_lease.get_or_insert(LONGEST_LEASE);
        options.check()?;
        options
            .replicas
            .refuse("the nodes of a quorum are servers by themselves")?;
        let longest = Ttl::new(longest, false)
            .map_err(|why| config(format!("the longest lease of {longest:?}: {why}")))?;
        let parsed = parse(nodes)?;
        let runtime = current_runtime()?;
        let watch = Arc::new(Watch::default());
        let nodes = connect(parsed, &options, &runtime, &events_of(&watch)).await?;
        let backend = Arc::new(QuorumBackend::new(nodes, longest, runtime));
        Ok(LockManager::assemble(options, backend, watch))
    }
}

/// A node whose description makes sense.
enum Parsed {
    Memory(MemoryStore),
    #[cfg(feature = "redis")]
    Redis(Box<crate::backend::redis::Target>),
}

impl Parsed {
    fn is(&self, other: &Parsed) -> bool {
        match (self, other) {
            (Parsed::Memory(one), Parsed::Memory(other)) => one.is(other),
            #[cfg(feature = "redis")]
            (Parsed::Redis(one), Parsed::Redis(other)) => {
                server_of(one.shown()) == server_of(other.shown())
            }
            #[cfg(feature = "redis")]
            _ => false,
        }
    }
}

/// Two databases of one server fail together.
#[cfg(feature = "redis")]
fn server_of(shown: &str) -> String {
    let address = shown
        .split_once("://")
        .map_or(shown, |(_, address)| address);
    match address.split_once('?') {
        Some((socket, _)) => socket.to_owned(),
        None => {
            let host = address.rsplit_once('/').map_or(address, |(host, _)| host);
            host.to_ascii_lowercase()
        }
    }
}

fn parse(nodes: Vec<QuorumNode>) -> Result<Vec<Parsed>, LockError> {
    let count = nodes.len();
    if count == 0 {
        return Err(config("a quorum has no nodes: name three or five"));
    }
    if count.is_multiple_of(2) {
        return Err(config(format!(
            "a quorum has an odd number of nodes, not {count}: a majority of {count} outlives no more nodes than one \
             of {}",
            count - 1
        )));
    }
    let mut parsed: Vec<Parsed> = Vec::with_capacity(count);
    for node in nodes {
        let node = match node.0 {
            Place::Memory(store) => Parsed::Memory(store),
            Place::Url(url) => server(&url)?,
        };
        if parsed.iter().any(|other| other.is(&node)) {
            return Err(config(
                "a node of the quorum is named twice: its vote would count twice",
            ));
        }
        parsed.push(node);
    }
    Ok(parsed)
}

#[cfg(feature = "redis")]
fn server(url: &str) -> Result<Parsed, LockError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_one_server = ["redis", "rediss", "redis+unix", "unix"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    if !is_one_server && scheme.to_ascii_lowercase().starts_with("redis") {
        return Err(config("a node of a quorum is one server by itself"));
    }
    let target = crate::backend::redis::Target::parse(url)?;
    Ok(Parsed::Redis(Box::new(target)))
}

#[cfg(not(feature = "redis"))]
fn server(_: &str) -> Result<Parsed, LockError> {
    Err(config(
        "no store for such URLs in this build: enable the feature `redis` of lock-runtime, or use `memory://`",
    ))
}

#[cfg(not(feature = "redis"))]
async fn connect(
    nodes: Vec<Parsed>,
    _: &Options,
    _: &Handle,
    events: &EventSink,
) -> Result<Vec<Node>, LockError> {
    let memory = |Parsed::Memory(store)| memory(store, events);
    Ok(nodes.into_iter().map(memory).collect())
}

fn memory(store: MemoryStore, events: &EventSink) -> Node {
    let backend = Arc::new(MemoryBackend::new(store, events.clone()));
    Node::new(backend, "memory", None)
}

/// Connects to all nodes at once. Those that are away are connected to in the background, if a majority is there.
#[cfg(feature = "redis")]
async fn connect(
    nodes: Vec<Parsed>,
    options: &Options,
    runtime: &Handle,
    events: &EventSink,
) -> Result<Vec<Node>, LockError> {
    use crate::backend::redis::{RedisBackend, RunIds, Settings, Target, Uptime};
    use tokio::task::JoinSet;

    let run_ids: Arc<RunIds> = Arc::default();
    let open = |index: usize, target: Target, lazy: bool| {
        let uptime = Arc::new(Uptime::new(index, &run_ids));
        let settings = Settings {
            namespace: options.namespace.to_string(),
            call_timeout: options.call_timeout,
            strict: options.strict,
            lazy,
            uptime: Some(uptime.clone()),
            channels: options.channels,
        };
        let (runtime, events) = (runtime.clone(), events.clone());
        async move {
            let backend = RedisBackend::connect(target, settings, runtime, events).await?;
            Ok::<_, LockError>((backend, uptime))
        }
    };
    let count = nodes.len();
    let mut connecting = JoinSet::new();
    let mut connected: Vec<Option<Node>> = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        connected.push(match node {
            Parsed::Memory(store) => Some(memory(store, events)),
            Parsed::Redis(target) => {
                let target = *target;
                let opened = open(index, target.clone(), options.lazy);
                connecting.spawn(async move { (index, opened.await, target) });
                None
            }
        });
    }
    let mut away = Vec::new();
    while let Some(done) = connecting.join_next().await {
        let (index, opened, target) =
            done.map_err(|_| config("a task that connects to a quorum node was ended"))?;
        let (backend, uptime) = match opened {
            Ok(opened) => opened,
            Err(error @ LockError::Unavailable { .. }) => {
                away.push(error);
                // A failed majority is an error whatever else comes.
                if away.len() > count / 2 {
                    return Err(away.swap_remove(0));
                }
                open(index, target.clone(), true).await?
            }
            Err(error) => return Err(error),
        };
        let node = Node::new(
            backend,
            target.shown(),
            Some(Arc::new(move || uptime.age())),
        );
        if let Some(place) = connected.get_mut(index) {
            *place = Some(node);
        }
    }
    Ok(connected.into_iter().flatten().collect())
}
