//! One lock store of any kind, and the macro that runs a behaviour on each.

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager, LockManagerBuilder, MemoryStore};
use tokio::time::sleep;

use crate::eventually::eventually;
use crate::faults;
use crate::mariadb::MariadbTable;
use crate::postgres::PostgresTable;
use crate::quorum::Quorum;
use crate::server::{Data, RedisServer};
use crate::shared::{QUORUM_LEASE, Share, Topology};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(60 * 60);

/// A renewal that is four seconds late still comes in time.
const LASTING: Duration = Duration::from_secs(6);
/// A renewal that is more than six seconds late still comes in time.
const RENEWING: Duration = Duration::from_secs(10);

/// The lease of [`builder`]. It is longer than [`PATIENCE`](crate::eventually::PATIENCE), so that no test takes the end of a
/// lease for what it waits for, and long enough for [`CALL_TIMEOUT`], because a call may take a sixth of it.
pub const LEASE: Duration = Duration::from_secs(180);

/// The wait of [`builder`]: only a hang exceeds it.
pub const WAIT: Duration = Duration::from_secs(60);

/// The call timeout of [`builder`]: as long as a busy machine stands still, and no longer, because some tests wait for its end.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the settings of managers that wait for the answers of a busy machine.
pub fn builder() -> LockManagerBuilder {
    LockManager::builder()
        .lease(LEASE)
        .wait(WAIT)
        .call_timeout(CALL_TIMEOUT)
}

/// Connects a manager with these settings, however long a busy machine takes for it.
pub async fn connected(url: &str) -> LockManager {
    faults::connected(builder(), url).await
}

/// Returns what is left of a lock's lease, as a manager sees it. Nothing if the store did not say.
pub async fn left_of(locks: &LockManager, name: &str) -> Duration {
    let seen = locks.inspect(name).await;
    seen.ok().and_then(|seen| seen.ttl).unwrap_or_default()
}

/// A store, or a part of one, that belongs to one test.
#[derive(Debug)]
pub enum Store {
    /// A memory store in this process.
    Memory(MemoryStore),
    /// A server process.
    Redis(Box<RedisServer>),
    /// Three memory stores that keep locks together.
    Quorum(Quorum),
    /// A part of servers that the tests of this process share.
    Shared(Share),
    /// A table of the PostgreSQL server that the tests of this process share.
    Postgres(PostgresTable),
    /// A table of the MariaDB server that the tests of this process share.
    Mysql(MariadbTable),
}

impl Store {
    /// Makes a memory store.
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// Starts a Redis server.
    pub fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start()))
    }

    /// Returns a part of the process's master behind a sentinel.
    pub fn sentinel(test: &str) -> Self {
        Self::Shared(Share::of(Topology::sentinel(), test))
    }

    /// Returns a part of the process's cluster.
    pub fn cluster(test: &str) -> Self {
        Self::Shared(Share::of(Topology::cluster(), test))
    }

    /// Returns a table of the process's PostgreSQL server.
    pub fn postgres() -> Self {
        Self::Postgres(PostgresTable::new())
    }

    /// Returns a table of the process's MariaDB server.
    pub fn mysql() -> Self {
        Self::Mysql(MariadbTable::new())
    }

    /// Makes three memory stores that keep locks together.
    pub fn quorum() -> Self {
        Self::Quorum(Quorum::memory(3))
    }

    /// Returns a part of the process's quorum of servers.
    pub fn redis_quorum(test: &str) -> Self {
        Self::Shared(Share::of(Topology::quorum(), test))
    }

    /// Connects a further manager, which is a stranger to the others, like another process.
    pub async fn manager(&self) -> LockManager {
        self.connect(builder()).await
    }

    /// Connects a manager with settings.
    pub async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        match self {
            Self::Memory(store) => builder
                .memory_store(store)
                .in_memory()
                .expect("a manager on the memory store"),
            Self::Redis(server) => faults::connected(builder, &server.url()).await,
            Self::Quorum(quorum) => quorum.connect(builder.lease(self.lease())).await,
            Self::Shared(share) => share.connect(builder).await,
            Self::Postgres(table) => {
                faults::connected(builder.ensure_schema(true), &table.url()).await
            }
            Self::Mysql(table) => {
                faults::connected(builder.ensure_schema(true), &table.url()).await
            }
        }
    }

    /// Returns the lease of its managers' holds unless they say otherwise.
    pub fn lease(&self) -> Duration {
        match self {
            Self::Shared(share) if share.is_quorum() => QUORUM_LEASE,
            Self::Quorum(_) => Duration::from_secs(30),
            _ => LEASE,
        }
    }

    /// Returns the longest lease that it grants.
    pub fn longest_lease(&self) -> Duration {
        match self {
            Self::Shared(share) if share.is_quorum() => QUORUM_LEASE,
            Self::Quorum(_) => Duration::from_secs(60),
            _ => Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Connects a manager whose waiters sleep until they are told of a release, so that only a message, or the end of a
    /// lease, wakes them. On a store that tells nobody, they ask again and again.
    pub async fn told(&self) -> LockManager {
        self.connect(builder().longest_nap(FOR_EVER)).await
    }

    /// Returns the time in which something has to happen that takes `exact` on an idle machine: just that on a paused
    /// clock, and elsewhere half a lease, which only a hang takes. A lease that has to end is longer than it.
    pub fn within(&self, exact: Duration) -> Duration {
        if self.is_paused() {
            return exact;
        }
        exact.max(self.lease() / 2)
    }

    /// Returns `true` for stores in this process, beside which tokio's clock is paused.
    pub fn is_paused(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Quorum(_))
    }

    /// Gives a lock back that a message may have granted. Such a hold lasts for a second at first, so a machine that stands
    /// still may cost it, but where tokio's clock is paused.
    pub async fn given_back(&self, guard: LockGuard) {
        let is_good = faults::given_back(guard).await;
        assert!(is_good || !self.is_paused(), "it was lost");
    }

    /// Returns a lease for a hold that has to live for a while and to end then: `exact` on a paused clock, and elsewhere one
    /// that outlives the seconds for which a busy machine may not run a task.
    pub fn lasting(&self, exact: Duration) -> Duration {
        match self {
            _ if self.is_paused() => exact,
            Self::Shared(share) if share.is_quorum() => QUORUM_LEASE,
            _ => exact.max(LASTING),
        }
    }

    /// Returns a lease for a hold that only has to be renewed, or to be found lost by a renewal: nothing waits for its end.
    pub fn renewing(&self, exact: Duration) -> Duration {
        if self.is_paused() {
            return exact;
        }
        self.lasting(exact.max(RENEWING))
    }

    /// Waits until a lease has been renewed of which `left` is left. On a paused clock, it would have been over twice by
    /// then without that. Elsewhere, more of it is left than could be without that.
    pub async fn until_renewed(&self, lease: Duration, mut left: impl AsyncFnMut() -> Duration) {
        let first = if self.is_paused() {
            lease * 5 / 2
        } else {
            lease * 2 / 5
        };
        sleep(first).await;
        eventually("the lease is renewed", async || {
            left().await > lease * 3 / 4
        })
        .await;
    }

    /// Returns whether several stores keep its locks together. Such a store is slower, and has no tokens.
    pub fn is_quorum(&self) -> bool {
        match self {
            Self::Quorum(_) => true,
            Self::Shared(share) => share.is_quorum(),
            Self::Memory(_) | Self::Redis(_) | Self::Postgres(_) | Self::Mysql(_) => false,
        }
    }

    /// Deletes every key, as an operator's `FLUSHALL` does.
    pub fn flush(&self) {
        match self {
            Self::Memory(store) => store.clear(),
            Self::Redis(server) => server.flushall(),
            Self::Quorum(quorum) => (0..3).for_each(|node| quorum.forget(node)),
            Self::Shared(share) => share.flush(),
            Self::Postgres(table) => table.empty(),
            Self::Mysql(table) => table.empty(),
        }
    }

    /// Makes one node of a quorum lose every key without a restart.
    pub fn forget(&self, node: usize) {
        match self {
            Self::Quorum(quorum) => quorum.forget(node),
            Self::Shared(share) => share.forget(node),
            _ => panic!("such a store has no nodes that forget"),
        }
    }

    /// Restarts the server without its data. A memory store only loses them. This is for behaviours that run `alone`.
    pub fn restart(&mut self) {
        match self {
            Self::Memory(store) => store.clear(),
            Self::Redis(server) => server.restart(Data::Lost),
            Self::Quorum(_) | Self::Shared(_) | Self::Postgres(_) | Self::Mysql(_) => {
                panic!("such a store is not restarted")
            }
        }
    }

    /// Waits until nothing except fence keys and control channels is left.
    pub async fn assert_clean(&self) {
        match self {
            Self::Memory(store) => {
                eventually("no lock is held any more", async || store.held() == 0).await;
            }
            Self::Redis(server) => server.assert_clean().await,
            Self::Quorum(quorum) => quorum.assert_clean().await,
            Self::Shared(share) => share.assert_clean().await,
            Self::Postgres(table) => table.assert_clean().await,
            Self::Mysql(table) => table.assert_clean().await,
        }
    }

    /// Waits until nothing and nobody is left. The managers must have been dropped before.
    pub async fn assert_deserted(&self) {
        match self {
            Self::Memory(_) | Self::Quorum(_) => self.assert_clean().await,
            Self::Redis(server) => {
                eventually("no manager's record is left", async || {
                    server.records().is_empty()
                })
                .await;
                server.assert_deserted().await;
            }
            Self::Shared(share) => share.assert_deserted().await,
            Self::Postgres(table) => table.assert_deserted().await,
            Self::Mysql(table) => table.assert_deserted().await,
        }
        eventually("every task of the test's runtime has ended", async || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
                == 0
        })
        .await;
    }
}

/// Runs each behaviour on each kind of store, as a test of its own, and looks for leftovers after it.
///
/// On memory the clock is paused, so that a lease of an hour is over in no time. Elsewhere time is real, and two
/// threads run the tasks. Sentinels and clusters are shared by the tests of a process. Behaviours that restart the
/// store are in a `suite!` that begins with `alone:`. They run where each test has a store of its own.
#[macro_export]
macro_rules! suite {
    (alone: $($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $($(#[$doc])* async fn $behaviour($store: $type) $body)+

        mod alone_on_memory {
            $crate::suite!(@paused $crate::Store::memory(); $($behaviour)+);
        }

        mod alone_on_redis {
            $crate::suite!(@real |_name| $crate::Store::redis(); $($behaviour)+);
        }
    };
    (also on a quorum: $($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $crate::suite! {
            $($(#[$doc])* async fn $behaviour($store: $type) $body)+
        }

        $crate::suite!(@quorum; $($behaviour)+);
    };
    (only on a quorum: $($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $($(#[$doc])* async fn $behaviour($store: $type) $body)+

        $crate::suite!(@quorum; $($behaviour)+);
    };
    (not in databases: $($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $($(#[$doc])* async fn $behaviour($store: $type) $body)+

        mod on_memory {
            $crate::suite!(@paused $crate::Store::memory(); $($behaviour)+);
        }

        mod on_redis {
            $crate::suite!(@real |_name| $crate::Store::redis(); $($behaviour)+);
        }

        mod on_sentinel {
            $crate::suite!(@real |name| $crate::Store::sentinel(name); $($behaviour)+);
        }

        mod on_cluster {
            $crate::suite!(@real |name| $crate::Store::cluster(name); $($behaviour)+);
        }
    };
    ($($(#[$doc:meta])* async fn $behaviour:ident($store:ident: $type:ty) $body:block)+) => {
        $crate::suite! {
            not in databases:
            $($(#[$doc])* async fn $behaviour($store: $type) $body)+
        }

        mod on_postgres {
            $crate::suite!(@real |_name| $crate::Store::postgres(); $($behaviour)+);
        }

        mod on_mysql {
            $crate::suite!(@real |_name| $crate::Store::mysql(); $($behaviour)+);
        }
    };
    (@quorum; $($behaviour:ident)+) => {
        mod on_quorum {
            $crate::suite!(@paused $crate::Store::quorum(); $($behaviour)+);
        }

        mod on_redis_quorum {
            $crate::suite!(@real |name| $crate::Store::redis_quorum(name); $($behaviour)+);
        }
    };
    (@paused $new:expr; $($behaviour:ident)+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $behaviour() {
            let mut store = $new;
            super::$behaviour(&mut store).await;
            store.assert_deserted().await;
        })+
    };
    (@real |$name:ident| $new:expr; $($behaviour:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $behaviour() {
            let $name = stringify!($behaviour);
            let mut store = $new;
            super::$behaviour(&mut store).await;
            store.assert_deserted().await;
        })+
    };
}
