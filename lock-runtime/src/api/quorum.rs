//! Managers on a quorum, and the nodes of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::builder::{LockManagerBuilder, opening};
use crate::api::manager::LockManager;
use crate::backend::connect::Location;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::{QuorumBackend, connect};
use crate::values::{LockError, Ttl, config};

/// The default longest lease of a quorum: the time for which a node counts as down after a restart.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// One store of a quorum: a Redis server by its URL or as a `RedisServer`, or a memory store.
///
/// URLs are those of [`LockManagerBuilder::connect`] for single Redis servers, and `memory://`. A database cannot be a
/// node: it does not show whether it has forgotten locks. `Debug` shows no password.
///
/// ```no_run
/// use lock_runtime::LockManager;
///
/// # async fn connect() -> Result<(), lock_runtime::LockError> {
/// let nodes = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
/// let locks = LockManager::builder().quorum(nodes).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct QuorumNode(NodeSource);

#[derive(Clone)]
enum NodeSource {
    /// A URL, which is read later: each reading of `memory://` is another store.
    Url(String),
    Known(Result<Location, LockError>),
}

impl From<&str> for QuorumNode {
    fn from(url: &str) -> QuorumNode {
        QuorumNode::from(url.to_owned())
    }
}

impl From<String> for QuorumNode {
    fn from(url: String) -> QuorumNode {
        QuorumNode(NodeSource::Url(url))
    }
}

impl From<&String> for QuorumNode {
    fn from(url: &String) -> QuorumNode {
        QuorumNode::from(url.clone())
    }
}

impl From<&MemoryStore> for QuorumNode {
    fn from(store: &MemoryStore) -> QuorumNode {
        QuorumNode::from(store.clone())
    }
}

impl From<MemoryStore> for QuorumNode {
    fn from(store: MemoryStore) -> QuorumNode {
        QuorumNode::known(Ok(Location::Memory(store)))
    }
}

impl QuorumNode {
    pub(super) fn known(location: Result<Location, LockError>) -> QuorumNode {
        QuorumNode(NodeSource::Known(location))
    }

    fn location(self) -> Result<Location, LockError> {
        match self.0 {
            NodeSource::Url(url) => Location::parse(&url),
            NodeSource::Known(location) => location,
        }
    }
}

impl fmt::Debug for QuorumNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            NodeSource::Url(_) => "QuorumNode(url)",
            NodeSource::Known(Ok(Location::Memory(_))) => "QuorumNode(memory)",
            NodeSource::Known(_) => "QuorumNode(server)",
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
    /// - **No fencing tokens**: a guard's is `None`, even with [`fencing(true)`](Self::fencing).
    /// - A lease counts from before the first node was asked, less 1 % (10 ms at least) for the drift of clocks.
    ///   A node has a tenth of the lease to answer, or the call timeout if that is less.
    /// - A node that restarted counts as down, for new acquisitions, until it has run for the
    ///   [`longest_lease`](Self::longest_lease), by default 1 min: it may have forgotten holds that others still
    ///   believe in. That includes nodes that were started just now. Every manager of a quorum must set the same
    ///   longest lease. Redis servers show their restarts by `INFO`; memory stores do not restart.
    /// - [`lazy`](Self::lazy) connects in the background. Otherwise a majority must be reachable now; the rest may
    ///   come later.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] and [`LockError::InvalidLease`] before any I/O: no nodes, an even number of them, a
    /// node that is named twice, a URL that does not name a single Redis server or memory store. Then, as
    /// [`connect`](Self::connect), [`LockError::Unavailable`] if a majority of the nodes does not answer;
    /// [`LockError::Denied`] and [`LockError::InvalidConfig`] if any node refuses for good, or if two of them are one
    /// server. If they come to be one later, the second counts as away for as long as that lasts.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    #[doc(alias = "redlock")]
    pub async fn quorum<N: Into<QuorumNode>>(
        self,
        nodes: impl IntoIterator<Item = N>,
    ) -> Result<LockManager, LockError> {
        self.refuse_memory_store()?;
        let mut options = self.options;
        let nodes = nodes
            .into_iter()
            .map(|node| node.into().location()?.with(&options.handshake))
            .collect::<Result<Vec<_>, _>>();
        let longest = *options.longest_lease.get_or_insert(LONGEST_LEASE);
        options.check()?;
        options
            .replicas
            .refuse("the nodes of a quorum are servers by themselves")?;
        let longest = Ttl::new(longest, false)
            .map_err(|why| config(format!("the longest lease of {longest:?}: {why}")))?;
        let nodes = nodes?;
        connect::check(&nodes)?;
        let (opening, watch) = opening(options.clone())?;
        let nodes = connect::connect(nodes, &opening).await?;
        let backend = Arc::new(QuorumBackend::new(nodes, longest, opening.runtime));
        Ok(LockManager::assemble(options, backend, watch, opening.ids))
    }
}
