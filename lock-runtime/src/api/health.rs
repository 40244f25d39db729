//! The health of the store, for readiness probes and operators.

use tokio::task::coop;

use crate::api::manager::LockManager;
use crate::values::{Health, clock};

impl LockManager {
    /// Returns whether locks can be acquired now, and since when that is so.
    ///
    /// It asks each server of the store for what a lock needs, all of them at once, and waits for the answers within
    /// the call timeout. A Redis server is asked to keep a lock of its own name for a moment (`connect-check:…`), so
    /// the answer shows a replica, a full server, a server with too few replicas, and a server that has taken a right
    /// away. A database is asked whether it takes writes. A server whose connection is down is not waited for. An
    /// outage is a part of the answer, not an error: see [`Health::is_ok`]. Single keys are not checked. With
    /// [`replicas`](crate::LockManagerBuilder::replicas), the replicas of each master have to confirm its lock.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let locks = LockManager::in_memory();
    /// let health = locks.health().await;
    /// assert!(health.is_ok(), "{:?} since {:?}", health.error, health.since);
    /// locks.shutdown().await;
    /// assert!(!locks.health().await.is_ok());
    /// # }
    /// ```
    ///
    /// The feature `serde` makes the answer serializable.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time. A lock of the check that was not given back ends after two seconds.
    pub async fn health(&self) -> Health {
        coop::consume_budget().await;
        let core = self.core();
        let store = core.backend.store();
        if let Err(error) = core.start_here() {
            return Health::down(store, clock::now().wall(), error.to_string());
        }
        if let Some((why, since)) = core.life.closed_since() {
            return Health::down(store, since.wall(), why.to_string());
        }
        let checkup = core.backend.health(core.options.call_timeout).await;
        Health::of(store, checkup, core.presence.began.wall())
    }
}
