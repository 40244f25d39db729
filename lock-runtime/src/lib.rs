//! Distributed locks for async Rust: leases that are renewed while they live, fencing tokens, re-entry by call chain,
//! local queues, read/write locks, semaphores; on Redis (in Redisson's wire format) and in memory.
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
LockManager::in_memory().install_global()?;
assert_eq!(settle(&Order { id: 7 }).await?, 7);
# Ok(())
# }
```
"#
)]
//!
//! # Kinds
//!
//! | method | Redisson's | what it is |
//! |---|---|---|
//! | [`mutex`](LockManager::mutex) | `RLock` | one holder; what its call chain asks for under it shares the hold |
//! | [`fair`](LockManager::fair) | `RFairLock` | one holder, in the order of asking across all processes |
//! | [`read`](LockManager::read), [`write`](LockManager::write) | `RReadWriteLock` | many readers or one writer; a writer may go on as a reader |
//! | [`fenced`](LockManager::fenced) | `RFencedLock` | a mutex whose tokens are Redisson's counter |
//! | [`multi`](LockManager::multi) | `RedissonMultiLock` | several of these as one: all or none, without deadlock if asked for under no other lock |
//! | [`semaphore`](LockManager::semaphore) | `RPermitExpirableSemaphore` | leased permits |
//! | [`plain_semaphore`](LockManager::plain_semaphore) | `RSemaphore` | permits without holder or lease |
//! | [`latch`](LockManager::latch) | `RCountDownLatch` | a count that is waited for |
//!
//! All but the last two give a [`LockGuard`], with the same renewal and the same loss. A name is used with one kind
//! everywhere: what stands under it in the store is of that kind, and another one is refused
//! ([`LockError::ForeignKey`]) or, for those that look the same (mutex, fenced, fair), served beside its queue and
//! its counter.
//!
//! # Semaphores and latches
//!
//! A [`Semaphore`] lets so many in at a time, over all processes. Its permits are leased: they are renewed while their
//! guard lives, and a crashed holder's come back.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock_runtime::LockError> {
//! # let locks = lock_runtime::LockManager::in_memory();
//! let exports = locks.semaphore("exports");
//! exports.try_set_permits(4).await?; // in every process: the first one sets it
//! let file = exports.permits(1).run(async |_| "export.csv").await?;
//! # assert_eq!((file, exports.available().await?), ("export.csv", 4));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Latch`] opens when so many events have happened, in whatever processes. [`PlainSemaphore`] is for sharing one
//! with Java: its permits have no holder, so a crashed one's are gone.
//!
//! # Quorums
//!
//! [`LockManagerBuilder::quorum`] keeps mutexes at a majority of several independent stores, as in Redlock: they
//! outlive the loss of a minority, and have no fencing tokens.
//!
//! # What a lock promises
//!
//! A lock here is a *lease*: the key has a TTL, and the holder renews it every third of that, or more seldom,
//! up to three fifths, where the store is slow.
//!
//! 1. While [`LockGuard::is_held`] says true, no other holder of that key was admitted, as long as the store kept the
//!    key (nobody deleted or evicted it, no write was lost) and its clock did not step. The answer is local: from a
//!    deadline that was taken before the request was sent, less a margin (1 % of the lease, 10 ms at least). It turns
//!    false on time if the store is unreachable, and after the process or the machine was frozen.
//! 2. When a hold is lost, [`LockGuard::lost`] resolves, and [`LockRequest::run`], the attribute and the layer drop the
//!    protected future at its current `.await` and return [`LockError::Lost`]. Loss is looked for before every poll.
//! 3. Every exclusive hold has a [`FencingToken`] that strictly increases per key. Exceptions: quorum locks, and managers
//!    built with [`fencing(false)`](LockManagerBuilder::fencing) (except `fenced` locks). The
//!    tokens of [`fenced`](LockManager::fenced) start again at 1 when the store loses their counter. Let the guarded
//!    resource refuse lower ones: that closes the gap which no lease can close, a holder that is paused between a check
//!    and a write.
//!
//! # What happens on …
//!
//! | event | what happens | where |
//! |---|---|---|
//! | release | renewal stops, the release is sent; or the lock goes to the next local waiter | `release/mod.rs`, `release/hand_over.rs` |
//! | drop of a guard | the same, in the background; never blocks, never panics, with or without a runtime | `release/mod.rs` |
//! | drop of an acquiring future | it leaves the queue; what the store may have granted is undone | `queue/waiter.rs`, `queue/head.rs`, `acquire/fair.rs`; `backend/redis/kinds/acquire.rs` |
//! | panic in a body | the body is dropped, then the lock is released in the background | `protect/mod.rs`, `release/mod.rs` |
//! | loss | `lost()` resolves, the body is dropped, local waiters go on | `hold/loss.rs`, `protect/driver.rs` |
//! | no answer to a renewal | another is sent beside it until the local deadline, then the hold is lost; a late answer counts | `renew/mod.rs` |
//! | end of the manager's runtime | guards that live in another one are lost at once, the keys expire with their leases | `renew/mod.rs` |
//! | crash of the process | the key expires with its lease | the store |
//! | [`LockManager::shutdown`] | waiters are sent away, holds get a grace period, the rest is lost and released | `api/manager.rs` |
//!
//! # Defaults
//!
//! [`LockManagerBuilder`] lists them with their trade-offs: lease 30 s, wait 10 s, namespace `lock:`, tokens on.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `macros` | yes | `#[distributed_lock]` and `key!` |
//! | `redis` | yes | `redis://`, `unix://`, `redis-sentinel://` and `redis-cluster://` URLs |
//! | `tls-rustls` | no | `rediss://`, `rediss-sentinel://` and `rediss-cluster://` URLs, by rustls with ring; trusts the authorities of the operating system |
//! | `metrics` | no | counters and histograms through the `metrics` facade, labelled by template or label |
//!
//! Events go to `tracing` always: a lost lock, a failed renewal, an outage are warnings. Of a thousand locks that are lost
//! in one second for one reason, the first is logged with its name, the others as one line with their number.

#![cfg_attr(
    not(feature = "redis"),
    allow(
        dead_code,
        reason = "some of what network stores need has no other user"
    )
)]

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
mod values;

pub use api::builder::LockManagerBuilder;
pub use api::convert::{FromLockError, Skipped};
pub use api::guard::LockGuard;
pub use api::info::{HolderInfo, LockInfo};
pub use api::latch::{Latch, LatchRequest};
pub use api::lease::{Lease, Lost, Member};
pub use api::manager::LockManager;
pub use api::multi::MultiRequest;
pub use api::plain_semaphore::{PlainRequest, PlainSemaphore};
pub use api::quorum::QuorumNode;
pub use api::request::LockRequest;
pub use api::semaphore::Semaphore;
pub use backend::memory::MemoryStore;
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
pub use protect::{Outcome, Protect, Scope};
pub use values::channels::ClusterChannels;
pub use values::error::{LockError, LostReason, StoreError};
pub use values::fence::FencingToken;
pub use values::kind::LockMode;
pub use values::name::{KeyPart, LockName};
pub use values::replicas::Replicas;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use backend::redis::fuzz;

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
