//! Visitors of a shop, each counted once, and its views.
//!
//! `site:visitors:{shop}` is a HyperLogLog: it estimates, with an error of 0.8 %, how many different visitors were added,
//! and takes 12 KB for any number of them. `site:views:{shop}` is a counter.
//!
//! No lock: to add a visitor twice is to add once, and `INCR` reads and writes in one step.

use redis::AsyncCommands;

use crate::error::Error;
use crate::site::Redis;

#[derive(Clone)]
pub(crate) struct Visitors {
    pub(crate) redis: Redis,
}

impl Visitors {
    pub(crate) async fn visit(&self, shop: i64, visitor: &str) -> Result<(), Error> {
        let mut visit = redis::pipe();
        visit.pfadd(visitors(shop), visitor).incr(views(shop), 1);
        Ok(visit.exec_async(&mut self.redis.clone()).await?)
    }

    /// Returns about how many visitors there were, and exactly how many views.
    pub(crate) async fn count(&self, shop: i64) -> Result<(u64, u64), Error> {
        let mut redis = self.redis.clone();
        let seen: u64 = redis.pfcount(visitors(shop)).await?;
        let views: Option<u64> = redis.get(views(shop)).await?;
        Ok((seen, views.unwrap_or(0)))
    }
}

fn visitors(shop: i64) -> String {
    format!("site:visitors:{shop}")
}

fn views(shop: i64) -> String {
    format!("site:views:{shop}")
}
