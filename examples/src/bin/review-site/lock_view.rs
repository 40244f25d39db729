//! Who holds which lock, over all processes: each tells the others once a second.
//!
//! `site:processes` is a hash: under the id of each process's locks, what it holds and waits for, as JSON.
//!
//! `LockManager::snapshot` asks no store, and knows this process only. `LockManager::inspect` asks the store about one lock,
//! and names its holder in any process. No lock: each process writes its own field.

use std::collections::HashMap;
use std::time::Duration;

use lock_runtime::LockManager;
use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::error::Error;
use crate::site::Redis;

const KEY: &str = "site:processes";
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Seconds after which a process counts as gone.
const GONE: i64 = 5;

#[derive(Clone)]
pub(crate) struct LockView {
    pub(crate) redis: Redis,
    pub(crate) locks: LockManager,
}

impl LockView {
    pub(crate) async fn tell(&self) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let now = self.now().await?;
        let pid = std::process::id();
        let seen = json!({"at": now, "pid": pid, "locks": self.locks.snapshot()});
        Ok(redis.hset(KEY, self.locks.id(), seen.to_string()).await?)
    }

    /// Says that this process ends.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        Ok(self.redis.clone().hdel(KEY, self.locks.id()).await?)
    }

    /// Returns what every process has told.
    pub(crate) async fn all(&self) -> Result<Vec<Value>, Error> {
        let told: HashMap<String, String> = self.redis.clone().hgetall(KEY).await?;
        let now = self.now().await?;
        let mut all = vec![];
        for (id, told) in told {
            let told: Value = serde_json::from_str(&told)?;
            match told["at"].as_i64() {
                Some(at) if now - at <= GONE => all.push(told),
                _ => self.redis.clone().hdel(KEY, id).await?,
            }
        }
        all.sort_by_key(|told| told["pid"].as_u64());
        Ok(all)
    }

    /// The clock of the server, which is the same for all.
    async fn now(&self) -> Result<i64, Error> {
        let mut redis = self.redis.clone();
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut redis).await?;
        Ok(seconds)
    }
}
