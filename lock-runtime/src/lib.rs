//! Distributed locks for async Rust: leases that are renewed while they live, fencing tokens, re-entry by call chain,
//! local queues, read/write locks, semaphores; on Redis (in Redisson's wire format), on PostgreSQL, MariaDB and MySQL,
//! and in memory.
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::LockManager;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::connect("memory://").await?; // or "redis://127.0.0.1/"
//!
//! // By hand: a guard that is renewed until it is released or dropped.
//! let guard = locks.mutex("report:daily").wait(Duration::from_secs(5)).acquire().await?;
//! assert!(guard.is_held());
//! println!("token {:?}, {:?} left", guard.fencing_token(), guard.remaining());
//! guard.release().await?;
//!
//! // Around a body, which is dropped if the lock is lost.
//! let total = locks.mutex("report:daily").run(async |lease| lease.fencing_token()).await?;
//! # assert!(total.is_some());
//! # Ok(())
//! # }
//! ```
#![warn(clippy::match_bool)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    feature = "macros",
    doc = r#"
As an attribute:

```
use lock_runtime::{LockError, LockManager, distributed_lock};

struct Order { id: u64 }

#[distributed_lock(key = "order:{order.id}", wait = "2s")]
async fn settle(order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

# #[tokio::main(flavor = "current_thread")]
# async fn main() -> Result<(), LockError> {
LockManager::in_memory().install_global();
assert_eq!(settle(&Order { id: 7 }).await?, 7);
# Ok(())
# }
```
"#
)]
//!
//! # Where to go on
//!
//! * [`LockManager`] makes requests: [`mutex`](LockManager::mutex), [`fair`](LockManager::fair),
//!   [`read`](LockManager::read) and [`write`](LockManager::write), [`fenced`](LockManager::fenced),
//!   [`multi`](LockManager::multi), [`semaphore`](LockManager::semaphore),
//!   [`plain_semaphore`](LockManager::plain_semaphore) and [`latch`](LockManager::latch); and
//!   [`elect`](LockManager::elect)s a leader among processes. [`ids`](LockManager::ids) gives ids for rows.
//!   [The guide](_documentation::guide#kinds-of-locks) says what each kind is.
//! * [`LockManagerBuilder`] lists the options with their defaults and trade-offs: lease 30 s, wait 10 s, namespace
//!   `lock:`, tokens on. [`LockManagerBuilder::quorum`] keeps mutexes at a majority of several independent stores, as in
//!   Redlock: they outlive the loss of a minority, and have no fencing tokens.
//! * [`LockConfig`] reads these options from the environment or, with the feature `serde`, from a file. A store may also be
//!   that of a `redis` client which the program has; logins may change, and certificates may be the program's own:
//!   [connecting](_documentation::redis#connecting).
//! * [`blocking`] is for threads, and for a `main` without an async runtime.
//! * [`LockError`] says what can go wrong, and whether a retry can help.
//!   [What happens on](_documentation::guide#what-happens-on-) a drop, a panic, a loss or a crash is in the guide.
//! * [`_documentation`] is the book: a tutorial, the guide, what is guaranteed and what is not, fencing, running on Redis,
//!   on PostgreSQL and on MySQL, the format that is shared with Redisson, metrics, what to do on call, testing, other locks,
//!   figures, evidence, the threat model.
//!
//! # What a lock promises
//!
//! A lock here is a *lease*: the key has a TTL, and the holder renews it every third of that, or more seldom,
//! up to three fifths, where the store is slow.
//!
//! 1. While [`LockGuard::is_held`] says true, no other holder of that key was admitted, as long as the store kept the
//!    key (nobody deleted or evicted it, no write was lost) and its clock did not step forward. The answer is local: from a
//!    deadline that was taken before the request was sent, less a margin (1 % of the lease, 10 ms at least). It turns
//!    false on time if the store is unreachable, and after the process was frozen, or the machine, if
//!    [a clock of it went on](_documentation::guarantees#when-the-machine-sleeps).
//! 2. When a hold is lost, [`LockGuard::lost`] resolves, and [`LockRequest::run`], the attribute and the layer drop the
//!    protected future at its current `.await` and return [`LockError::Lost`]. Loss is looked for before every poll.
//! 3. Every exclusive hold has a [`FencingToken`] that strictly increases per key. Exceptions: quorum locks, and managers
//!    built with [`fencing(false)`](LockManagerBuilder::fencing) (except `fenced` locks). The
//!    tokens of [`fenced`](LockManager::fenced) start again at 1 when the store loses their counter. Let the guarded
//!    resource refuse lower ones: that closes the gap which no lease can close, a holder that is paused between a check
//!    and a write. [Fencing](_documentation::fencing) has the statements for five stores.
//!
//! # Features
//!
//! The library needs a tokio runtime with timers (except [`blocking`], which brings its own), and Rust 1.88 or later.
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `macros` | yes | `#[distributed_lock]` and `key!` |
//! | `redis` | yes | `redis://`, `unix://`, `redis-sentinel://` and `redis-cluster://` URLs; `LockManagerBuilder::connect_redis` |
//! | `postgres` | no | `postgres://` URLs: [running on PostgreSQL](crate::_documentation::postgres); locks inside a transaction of yours |
//! | `mysql` | no | `mysql://` and `mariadb://` URLs: [running on MySQL and MariaDB](crate::_documentation::mysql); locks inside a transaction of yours |
//! | `tls-rustls` | no | beside a store: `rediss://`, `rediss-sentinel://` and `rediss-cluster://` URLs, `sslmode` of `postgres://` and `mysql://` URLs; by rustls, with the provider that the program has installed or with ring; trusts the authorities of the operating system, or those of `LockManagerBuilder::root_certificate`; shows a `client_certificate` |
//! | `metrics` | no | [metrics](crate::_documentation::metrics) through the `metrics` facade, labelled by template or label |
//! | `serde` | no | [`ManagerSnapshot`], [`Health`], [`LockInfo`] and [`FencingToken`] can be serialized, [`FencingToken`] and [`LockConfig`] deserialized |
//! | `test-util` | no | the module `test_util`: a store that answers as a test tells it, an error of each kind, assertions on who holds what; for `[dev-dependencies]` |
//!
//! Events go to `tracing` always: a lost lock, a failed renewal, an outage are warnings. Of a thousand locks that are lost
//! in one second for one reason, the first is logged with its name, the others as one line with their number.

#![cfg_attr(
    not(all(
        feature = "redis",
        feature = "postgres",
        feature = "mysql",
        feature = "tls-rustls"
    )),
    allow(
        dead_code,
        unused_imports,
        reason = "each network store needs some of what they share"
    )
)]

#[cfg(doc)]
pub mod _documentation;
mod acquire;
mod api;
mod backend;
mod hold;
mod observe;
mod protect;
mod queue;
mod release;
mod renew;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod values;

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use acquire::transaction::{SqlDialect, SqlTransaction, TransactionError};
pub use acquire::try_acquire::TryAcquire;
pub use api::blocking;
pub use api::builder::LockManagerBuilder;
pub use api::config::LockConfig;
pub use api::convert::{FromLockError, Skipped};
pub use api::election::{Election, Leader};
pub use api::guard::LockGuard;
pub use api::ids::Ids;
pub use api::info::{HolderInfo, LockInfo};
pub use api::latch::{Latch, LatchRequest};
pub use api::lease::{Lease, Lost, MemberLock};
pub use api::manager::LockManager;
pub use api::multi::MultiRequest;
pub use api::observer::LeaderObserver;
pub use api::plain_semaphore::{PlainSemaphore, PlainSemaphoreRequest};
pub use api::quorum::QuorumNode;
#[cfg(feature = "redis")]
pub use api::redis_server::RedisServer;
pub use api::request::LockRequest;
pub use api::semaphore::Semaphore;
pub use api::snapshot::{HeldLock, ManagerSnapshot, WaitedLock};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use api::transaction::raise_fence;
pub use backend::memory::MemoryStore;
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
pub use protect::{Outcome, ProtectFuture, ScopeFuture};
pub use values::channels::ClusterChannels;
pub use values::error::{LockError, LostReason, StoreError};
pub use values::fence::{FencingToken, FencingTokenError};
pub use values::handshake::{Credentials, Login, LoginFuture};
pub use values::health::{Health, HealthState, NodeHealth};
pub use values::kind::{LockKind, LockMode};
pub use values::name::{IntoLockName, KeyPart, LockName};
pub use values::refusal::{HeldHere, ShutdownCause, WaiterCap};
pub use values::replicas::Replicas;
pub use values::store::StoreKind;

/// The version of the `redis` crate whose clients [`RedisServer`] is made of.
#[cfg(feature = "redis")]
#[doc(no_inline)]
pub use redis;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use backend::redis::fuzz;

#[cfg(simulation)]
#[doc(hidden)]
pub mod simulation;

/// Builds a [`LockName`] from a template, with the attribute's placeholders and escaping.
///
/// Placeholders name local variables; `{}` takes the next value after the template.
///
/// ```
/// use lock_runtime::key;
///
/// let id = "a:b";
/// assert_eq!(key!("order:{id}/{}", 1 + 1).as_str(), "order:a%3Ab/2");
/// ```
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! key {
    ($($input:tt)*) => {
        $crate::__private::key!($crate, $($input)*)
    };
}

#[doc(hidden)]
pub mod __private {
    pub use crate::api::macro_support::*;
    #[cfg(feature = "macros")]
    pub use lock_macros::key;
}
