//! Pages of shops from a cache in front of the database.
//!
//! | key | what it is |
//! | --- | --- |
//! | `site:shop:{id}` | the shop as JSON, or `null`: that there is no such shop is cached, too |
//! | `site:shop:{id}:fence` | the fencing token of the last hold that changed the value |
//!
//! A value is fresh for ten minutes, give or take one, so that what was cached together does not expire together. For an
//! hour after that it is kept, but old: what is left of the key's life says which.
//!
//! **The lock** `site:shop:{id}` is for what a cache cannot decide in one command, because the database is part of it:
//!
//! - One request rebuilds a missing value. The others wait for the lock, look again, and find it (`get`).
//! - Or nobody waits: one request rebuilds an old value in the background, and all others get the old one (`get_popular`).
//! - A reader that has read a row before a write, and writes it to the cache afterwards, would leave an old value there. So
//!   the value is deleted twice: at once, and once more under the lock. A reader of the old row holds the lock until the
//!   row is cached, so the second deletion comes after it. A later holder of the lock reads the new row.
//! - A reader that was paused for longer than its lease holds no lock any more when it wakes up. Its token is lower than
//!   that of the second deletion, and `cache_unless_late.lua` refuses it.
//!
//! If the process dies or the browser hangs up between the commit and the deletions, or they fail, the old value stays until
//! its life is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use examples::Sqlite;
use lock_runtime::{FencingToken, LockManager, distributed_lock};
use redis::{AsyncCommands, Script};
use rusqlite::OptionalExtension;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::bloom::Bloom;
use crate::error::Error;
use crate::site::Redis;

pub(crate) const SCHEMA: &str = "CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT NOT NULL);";

const FRESH: Duration = Duration::from_secs(600);
pub(crate) const OLD: Duration = Duration::from_secs(3600);
/// The time for which it is believed that there is no such shop.
const ABSENT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shop {
    pub(crate) id: i64,
    pub(crate) name: String,
}

#[derive(Clone)]
pub(crate) struct Shops {
    pub(crate) redis: Redis,
    pub(crate) database: Sqlite,
    pub(crate) locks: LockManager,
    pub(crate) bloom: Bloom,
    /// The number of rows that were asked for.
    pub(crate) queries: Arc<AtomicU64>,
}

/// A value of the cache: a shop, or that there is none.
pub(crate) struct Cached {
    pub(crate) shop: Option<Shop>,
    pub(crate) is_fresh: bool,
}

impl Shops {
    /// Returns a shop that is fresh, if it has to be rebuilt for that.
    pub(crate) async fn get(&self, id: i64) -> Result<Option<Shop>, Error> {
        if !self.bloom.may_contain(id).await? {
            return Ok(None);
        }
        match self.cached(id).await? {
            Some(cached) if cached.is_fresh => Ok(cached.shop),
            _ => self.rebuild(id).await,
        }
    }

    /// Returns a shop that may be old, and waits only if it is not in the cache at all.
    pub(crate) async fn get_popular(&self, id: i64) -> Result<Option<Shop>, Error> {
        match self.cached(id).await? {
            Some(cached) => {
                if !cached.is_fresh {
                    let shops = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = shops.refresh(id).await {
                            tracing::warn!("shop {id} stays old: {error}");
                        }
                    });
                }
                Ok(cached.shop)
            }
            None => self.get(id).await,
        }
    }

    /// Waits behind all who ask for the shop. A browser that gives up earlier takes its place in the queue with it.
    #[distributed_lock(key = "site:shop:{id}", wait = "60s", manager = self.locks, guard = lease)]
    async fn rebuild(&self, id: i64) -> Result<Option<Shop>, Error> {
        self.load_unless_fresh(id, lease.fencing_token()).await
    }

    /// Does nothing if somebody rebuilds the shop already.
    #[distributed_lock(key = "site:shop:{id}", on_busy = skip, manager = self.locks, guard = lease)]
    async fn refresh(&self, id: i64) -> Result<Option<()>, Error> {
        self.load_unless_fresh(id, lease.fencing_token()).await?;
        Ok(Some(()))
    }

    /// Looks again under the lock: the shop may have been rebuilt since the caller looked.
    async fn load_unless_fresh(
        &self,
        id: i64,
        token: Option<FencingToken>,
    ) -> Result<Option<Shop>, Error> {
        match self.cached(id).await? {
            Some(cached) if cached.is_fresh => Ok(cached.shop),
            _ => {
                let shop = self.load(id).await?;
                self.cache(id, token, &shop).await?;
                Ok(shop)
            }
        }
    }

    /// Asks the database.
    pub(crate) async fn load(&self, id: i64) -> Result<Option<Shop>, Error> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let select = "SELECT id, name FROM shops WHERE id = ?1";
        let row = self.database.call(move |connection| {
            let mut select = connection.prepare_cached(select)?;
            let shop = select.query_row([id], |row| {
                let (id, name) = (row.get(0)?, row.get(1)?);
                Ok(Shop { id, name })
            });
            shop.optional()
        });
        Ok(row.await?)
    }

    pub(crate) async fn cached(&self, id: i64) -> Result<Option<Cached>, Error> {
        let mut look = redis::pipe();
        look.atomic().get(key(id)).pttl(key(id));
        let (value, left): (Option<String>, i64) =
            look.query_async(&mut self.redis.clone()).await?;
        let Some(value) = value else { return Ok(None) };
        let shop: Option<Shop> = serde_json::from_str(&value)?;
        let is_fresh = shop.is_none() || left > OLD.as_millis() as i64;
        Ok(Some(Cached { shop, is_fresh }))
    }

    /// Caches what the database has said. Returns false if it came too late, which is no error: somebody else has changed
    /// the value since.
    pub(crate) async fn cache(
        &self,
        id: i64,
        token: Option<FencingToken>,
        shop: &Option<Shop>,
    ) -> Result<bool, Error> {
        self.change(id, token, &serde_json::to_string(shop)?, life(shop))
            .await
    }

    /// Changes a shop, or adds it. Returns when the database has it, and the first deletion is done. The task that it
    /// returns does the second one, for which a request does not wait.
    pub(crate) async fn write(&self, shop: Shop) -> Result<JoinHandle<Result<(), Error>>, Error> {
        let id = shop.id;
        self.bloom.add(&[id]).await?;
        let write = "INSERT INTO shops VALUES (?1, ?2)
            ON CONFLICT (id) DO UPDATE SET name = excluded.name";
        let written = self
            .database
            .transaction(move |it| it.execute(write, (id, shop.name)));
        written.await?;
        let () = self.redis.clone().del(key(id)).await?;
        let shops = self.clone();
        Ok(tokio::spawn(async move { shops.delete_again(id).await }))
    }

    #[distributed_lock(key = "site:shop:{id}", wait = "60s", manager = self.locks, guard = lease)]
    async fn delete_again(&self, id: i64) -> Result<(), Error> {
        self.change(id, lease.fencing_token(), "", Duration::ZERO)
            .await?;
        Ok(())
    }

    async fn change(
        &self,
        id: i64,
        token: Option<FencingToken>,
        value: &str,
        life: Duration,
    ) -> Result<bool, Error> {
        let change = Script::new(include_str!("cache_unless_late.lua"));
        let mut change = change.key(key(id));
        // A mutex on Redis has tokens.
        change
            .key(format!("{}:fence", key(id)))
            .arg(token.map_or(0, i64::from));
        change.arg(value).arg(life.as_millis() as u64);
        Ok(change.invoke_async(&mut self.redis.clone()).await?)
    }
}

fn key(id: i64) -> String {
    format!("site:shop:{id}")
}

/// The life of a value, up to a tenth longer or shorter.
pub(crate) fn life(shop: &Option<Shop>) -> Duration {
    let jitter = 0.9 + 0.2 * fastrand::f64();
    match shop {
        Some(_) => FRESH.mul_f64(jitter) + OLD,
        None => ABSENT.mul_f64(jitter),
    }
}
