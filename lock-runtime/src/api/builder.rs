//! The builder of a manager, with the options as a caller sets them.

use std::sync::Arc;
use std::time::Duration;

use crate::api::manager::{LockManager, events_of};
use crate::backend::Backend;
use crate::backend::connect::{Location, NO_LOGIN};
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::opening::Opening;
use crate::hold::current_runtime;
use crate::renew::Watch;
use crate::values::{ClusterChannels, Credentials, LockError, Options, Replicas, config};

/// A builder of a [`LockManager`].
///
/// | option | default | trade-off |
/// |---|---|---|
/// | [`namespace`](Self::namespace) | `lock:` | `""` shares names with other clients, Redisson's among them |
/// | [`app`](Self::app) | the executable's file name | the name that `inspect` shows for this process, to all who may read the store |
/// | [`lease`](Self::lease) | 30 s, renewed every third | shorter frees a crashed holder's keys sooner and renews more |
/// | [`longest_lease`](Self::longest_lease) | 24 h; on a quorum 1 min | shorter brings a restarted node of a quorum back sooner |
/// | [`wait`](Self::wait) | 10 s | shorter than the lease: after a holder's crash, default waiters give up before its lease ends |
/// | [`fencing`](Self::fencing) | on | off saves one write per acquisition |
/// | [`call_timeout`](Self::call_timeout) | 2 s, a sixth of the lease at most | shorter notices a dead server sooner, and mistakes a slow one for it, except in renewals |
/// | [`max_waiters`](Self::max_waiters) | 100,000 | a cap on memory |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 20,000 | a cap on the latency of a hot key |
/// | [`shutdown_grace`](Self::shutdown_grace) | 10 s | longer lets more work end by itself |
/// | [`replicas`](Self::replicas) | off | on hands out a lock only once replicas have it: a failover loses fewer, each acquisition takes longer |
/// | [`strict`](Self::strict) | off | on refuses a server that may evict held locks, instead of warning |
/// | [`cluster_channels`](Self::cluster_channels) | sharded | both: a message more per release, for fleets that use sharded and classic ones |
/// | [`lazy`](Self::lazy) | off | on starts without a reachable server; the first call waits for it |
/// | [`ensure_schema`](Self::ensure_schema) | off | on creates a database's table of locks, for which the user needs the right |
/// | [`credentials`](Self::credentials) | the login in the URL | asked for a login for each connection: for tokens that expire |
/// | [`client_certificate`](Self::client_certificate), [`client_certificate_files`](Self::client_certificate_files), [`client_certificate_from`](Self::client_certificate_from) | none | which servers may demand; the files are read again for each connection |
/// | [`root_certificate`](Self::root_certificate), [`root_certificate_file`](Self::root_certificate_file), [`root_certificate_from`](Self::root_certificate_from) | what the system trusts | the authorities to trust in its place |
/// | [`memory_store`](Self::memory_store) | a new one | one store for several managers [in memory](Self::in_memory) |
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect` or `in_memory`"]
pub struct LockManagerBuilder {
    pub(crate) options: Options,
    store: Option<MemoryStore>,
}

impl LockManager {
    /// Connects with default options: see [`LockManagerBuilder::connect`] for the URLs and the errors.
    ///
    /// # Errors
    /// The same as [`LockManagerBuilder::connect`].
    pub async fn connect(url: &str) -> Result<LockManager, LockError> {
        LockManager::builder().connect(url).await
    }

    /// Creates a manager on a new memory store, with default options. Its background work belongs to the runtime in
    /// which this is called, or, if there is none, to that of the first request.
    pub fn in_memory() -> LockManager {
        let watch = Arc::new(Watch::default());
        let store = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
        LockManager::assemble(Options::default(), Arc::new(store), watch, Arc::default())
    }

    /// Returns a builder with default options.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }
}

impl LockManagerBuilder {
    /// Sets the prefix of every key, 256 bytes at most. Default `lock:`. With `""`, keys are bare names, as Redisson
    /// uses them.
    pub fn namespace(mut self, namespace: impl AsRef<str>) -> Self {
        self.options.namespace = namespace.as_ref().into();
        self
    }

    /// Sets the name that operators see for this process: [`inspect`](LockManager::inspect) shows it for every holder
    /// and waiter ([`HolderInfo::app`](crate::HolderInfo::app)), with the host's name. It is 1 to 64 bytes of printable
    /// text. Default: the file name of the executable.
    pub fn app(mut self, name: impl AsRef<str>) -> Self {
        self.options.app = Some(name.as_ref().into());
        self
    }

    /// Sets the lease of requests that set none: 1 s to 24 h, default 30 s. It is the TTL of the key. Holds are renewed
    /// every third of it while they live, or up to three fifths of it if the store is slow; reads as if it were 30 s at
    /// most, because Redisson's readers beside them may shorten it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// Sets the longest lease that requests may ask for: beyond it, [`LockError::InvalidLease`]. It may not be shorter
    /// than [`lease`](Self::lease). A [`min_hold`](crate::LockRequest::min_hold) becomes a lease when the hold ends:
    /// beyond it with 2 % more, [`LockError::InvalidConfig`]. Default: 24 h; for a [`quorum`](Self::quorum) 1 min.
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.options.longest_lease = Some(longest);
        self
    }

    /// Sets the time that requests wait unless they set their own, one year at most. Default 10 s; zero tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Sets whether exclusive holds carry a fencing token. Default on. Those of [`fenced`](LockManager::fenced) always
    /// do.
    pub fn fencing(mut self, on: bool) -> Self {
        self.options.fencing = on;
        self
    }

    /// Sets the time that one call to the store may take: 10 ms to 60 s, default 2 s. Acquires also end after a sixth
    /// of their lease. A renewal that takes longer than that is not given up: it is asked again, and a late answer
    /// counts.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.options.call_timeout = timeout;
        self
    }

    /// Sets the number of callers that may wait in this manager. Default 100,000; beyond it,
    /// [`LockError::TooManyWaiters`].
    pub fn max_waiters(mut self, most: usize) -> Self {
        self.options.max_waiters = most;
        self
    }

    /// Sets the number of callers that may wait for one key in this manager. Default 20,000.
    pub fn max_waiters_per_key(mut self, most: usize) -> Self {
        self.options.max_waiters_per_key = most;
        self
    }

    /// Sets the time for which [`shutdown`](LockManager::shutdown) lets holds end by themselves. Default 10 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.options.shutdown_grace = grace;
        self
    }

    /// Sets whether a server whose settings can lose held locks is refused with [`LockError::InvalidConfig`] instead of a
    /// warning: on Redis any `maxmemory-policy` except `noeviction`, on MySQL and MariaDB any
    /// `innodb_flush_log_at_trx_commit` except 1. A Redis server that does not show its policy is refused, too, with
    /// [`LockError::Denied`] if the user may not ask for it (`+info`). It does nothing on PostgreSQL, where `fsync = off` is a
    /// warning. Default off.
    pub fn strict(mut self, on: bool) -> Self {
        self.options.strict = on;
        self
    }

    /// Sets whether [`connect`](Self::connect) returns before a server was reached. Default off: it fails fast. With
    /// `true`, the first call reports at once any error that `connect` would report and that no retry can help, such as
    /// a server that is too old, or refused by [`strict`](Self::strict).
    pub fn lazy(mut self, on: bool) -> Self {
        self.options.lazy = on;
        self
    }

    /// Sets whether [`connect`](Self::connect) creates the table of the locks if a database has none. Default off: then
    /// a database without it is refused. It needs the right to create tables. On stores other than SQL databases it has
    /// no effect.
    pub fn ensure_schema(mut self, on: bool) -> Self {
        self.options.ensure_schema = on;
        self
    }

    /// Sets the channels by which waiters are woken in a Redis Cluster. Default [`ClusterChannels::Sharded`]. On any
    /// other store it has no effect. All clients that share locks have to use the same channels.
    pub fn cluster_channels(mut self, channels: ClusterChannels) -> Self {
        self.options.channels = channels;
        self
    }

    /// Sets the number of replicas of the Redis master (in a cluster, of the master that has the lock's slot) that must
    /// have a lock before it is handed out. Default [`Replicas::off`].
    ///
    /// It makes the window smaller in which a failover loses a lock that was granted. By itself it does not close it:
    /// the replica that is promoted may be one that did not confirm, and a master that is cut off from the others goes
    /// on granting while enough replicas are on its side. With [`renewals(true)`](Replicas::renewals) and under
    /// conditions (`docs/guarantees.md`) it does; otherwise [fencing tokens](crate::FencingToken) do, for kinds that
    /// have them.
    ///
    /// It applies to every kind of lock and to leased permits, to hand-overs between local callers, and to renewals if
    /// they are to be [confirmed](Replicas::renewals), too. It does not apply to releases, plain permits and latches.
    /// The waiting uses two connections of its own to each master, and holds up no other request.
    ///
    /// It is refused by every store except Redis, and by a [`quorum`](Self::quorum).
    pub fn replicas(mut self, replicas: Replicas) -> Self {
        self.options.replicas = replicas;
        self
    }

    /// Asks `credentials` for a login whenever a connection to a server is opened, for tokens that expire: of Amazon
    /// ElastiCache or RDS (IAM), of Entra ID. A login that is [valid for some time](crate::Login::valid_for) is renewed
    /// on open connections, too. Default: the login that the URL holds, for ever.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use lock_runtime::{LockManager, Login};
    ///
    /// # async fn fetch_token() -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn connect() -> Result<(), lock_runtime::LockError> {
    /// let builder = LockManager::builder().credentials(async || {
    ///     let token = fetch_token().await?;
    ///     Ok::<_, std::io::Error>(Login::new("locks", token).valid_for(Duration::from_secs(900)))
    /// });
    /// let locks = builder.connect("rediss://cache.example.com/").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// They are asked for each connection: for commands, for messages, for replicas, to each node of a cluster and of a
    /// [`quorum`](Self::quorum), and to the master behind Sentinels. The sentinels themselves keep the login of the URL
    /// (`sentinel_user`, `sentinel_pass`).
    ///
    /// An answer may take the [call timeout](Self::call_timeout). No answer, an error and a panic are
    /// [`LockError::Unavailable`](crate::LockError::Unavailable), and are tried again while locks are asked for; a login that
    /// the server refuses is [`LockError::Denied`](crate::LockError::Denied), and the credentials are asked again in the
    /// background.
    ///
    /// They are refused, as [`LockError::InvalidConfig`](crate::LockError::InvalidConfig), together with a login in the
    /// URL (for databases, a password) and for memory stores.
    pub fn credentials(mut self, credentials: impl Credentials) -> Self {
        self.options.handshake.credentials = Some(Arc::new(credentials));
        self
    }

    /// Sets the store of [`in_memory`](Self::in_memory), to share one between managers. Default: a new one. What connects to
    /// a URL refuses it.
    pub fn memory_store(mut self, store: &MemoryStore) -> Self {
        self.store = Some(store.clone());
        self
    }

    /// Builds a manager on a memory store. Its background work belongs to the runtime in which this is called, or, if
    /// there is none, to that of the first request.
    ///
    /// # Errors
    /// [`LockError::InvalidLease`], [`LockError::InvalidConfig`].
    pub fn in_memory(self) -> Result<LockManager, LockError> {
        let (locks, _) = self.in_memory_as(|store| store)?;
        Ok(locks)
    }

    /// Does the same as [`in_memory`](Self::in_memory), on the backend that `backend` makes from the memory store.
    pub(crate) fn in_memory_as<B: Backend>(
        self,
        backend: impl FnOnce(MemoryBackend) -> B,
    ) -> Result<(LockManager, Arc<B>), LockError> {
        self.options.check()?;
        self.options.replicas.refuse("a memory store has none")?;
        self.options.handshake.refuse(NO_LOGIN)?;
        let store = self.store.unwrap_or_default();
        let watch = Arc::new(Watch::default());
        let store = MemoryBackend::new(store, events_of(&watch));
        let backend = Arc::new(backend(store));
        let locks = LockManager::assemble(self.options, backend.clone(), watch, Arc::default());
        Ok((locks, backend))
    }

    /// Refuses [`memory_store`](Self::memory_store) where another store is named.
    pub(super) fn refuse_memory_store(&self) -> Result<(), LockError> {
        match self.store {
            None => Ok(()),
            Some(_) => Err(config(
                "`memory_store` is for `in_memory`, and the URL names another store: leave one of them out",
            )),
        }
    }

    /// Connects to the store that `url` names:
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | a Redis server, version 7.0 or later |
    /// | `rediss://…` | the same by TLS; needs the feature `tls-rustls` |
    /// | `unix:///path[?db=…&user=…&pass=…]`, `redis+unix://…` | the same by a unix socket; not on Windows |
    /// | `redis-sentinel://[user:password@]host[:port],…/service[/database]` | the master that these Sentinels name; `?sentinel_user=…&sentinel_pass=…` is the sentinels' own login |
    /// | `rediss-sentinel://…` | the same by TLS, to the sentinels and to the master |
    /// | `redis-cluster://[user:password@]host[:port],…` | the Redis Cluster that one of these nodes is of |
    /// | `rediss-cluster://…` | the same by TLS |
    /// | `postgres://user:password@host[:port]/database`, `postgresql://…` | a table of a PostgreSQL database; needs the feature `postgres`, and has [parameters of its own](crate::_documentation::postgres#urls) |
    /// | `mysql://user:password@host[:port]/database`, `mariadb://…` | a table of a MySQL or MariaDB database; needs the feature `mysql`, and has [parameters of its own](crate::_documentation::mysql#urls) |
    /// | `memory://` | a new memory store |
    /// | `memory://name` | the memory store of that name in this process |
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] and [`LockError::InvalidLease`] before any I/O; then
    /// [`LockError::Unavailable`] if the server does not answer each step within the call timeout (on Redis the first
    /// connection has 5 s for all of its steps), [`LockError::Denied`] if it refuses the login, a command that locks
    /// need, or INFO where [`strict`](Self::strict) is on, and [`LockError::InvalidConfig`] if it is older than 7.0, may
    /// evict locks where `strict` is on, does not fit the URL or [`replicas`](Self::replicas), or is behind a proxy that
    /// does not serve SUBSCRIBE.
    /// [`LockError::InvalidConfig`] also without a tokio runtime. Each names the server, never the password, and says what
    /// to do: the book has [the table](crate::_documentation::redis#errors-at-connect).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self, url: &str) -> Result<LockManager, LockError> {
        self.connect_to(Location::parse(url)?).await
    }

    pub(super) async fn connect_to(self, location: Location) -> Result<LockManager, LockError> {
        self.refuse_memory_store()?;
        if let Some(store) = location.memory() {
            return self.memory_store(store).in_memory();
        }
        self.options.check()?;
        let location = location.with(&self.options.handshake)?;
        let (opening, watch) = opening(self.options.clone())?;
        let ids = opening.ids.clone();
        let backend = location.open(opening).await?;
        Ok(LockManager::assemble(self.options, backend, watch, ids))
    }
}

/// Returns what a store is opened with in this runtime, and the watch that its events go to.
///
/// # Errors
/// [`LockError::InvalidConfig`] outside a tokio runtime.
pub(super) fn opening(options: Options) -> Result<(Opening, Arc<Watch>), LockError> {
    let watch = Arc::new(Watch::default());
    let opening = Opening {
        options,
        runtime: current_runtime()?,
        events: events_of(&watch),
        ids: Arc::default(),
        uptime: None,
    };
    Ok((opening, watch))
}
