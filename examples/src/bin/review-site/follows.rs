//! Who follows whom, and whom two users both follow.
//!
//! `site:follows:{user}` and `site:followers:{user}` are sets: one for the question of the user, one for the feed.
//!
//! No lock: to add to a set twice is to add once, whatever the order. The two sets change in one transaction of Redis
//! (`MULTI`), so no reader sees the one without the other.

use redis::AsyncCommands;

use crate::error::Error;
use crate::site::Redis;

#[derive(Clone)]
pub(crate) struct Follows {
    pub(crate) redis: Redis,
}

impl Follows {
    pub(crate) async fn follow(&self, user: i64, whom: i64) -> Result<(), Error> {
        let mut both = redis::pipe();
        both.atomic()
            .sadd(follows(user), whom)
            .sadd(followers(whom), user);
        Ok(both.exec_async(&mut self.redis.clone()).await?)
    }

    pub(crate) async fn unfollow(&self, user: i64, whom: i64) -> Result<(), Error> {
        let mut both = redis::pipe();
        both.atomic()
            .srem(follows(user), whom)
            .srem(followers(whom), user);
        Ok(both.exec_async(&mut self.redis.clone()).await?)
    }

    /// Returns whom both follow, in the order of their ids.
    pub(crate) async fn in_common(&self, one: i64, other: i64) -> Result<Vec<i64>, Error> {
        let both = [follows(one), follows(other)];
        let mut common: Vec<i64> = self.redis.clone().sinter(&both).await?;
        common.sort_unstable();
        Ok(common)
    }

    pub(crate) async fn followers(&self, user: i64) -> Result<Vec<i64>, Error> {
        Ok(self.redis.clone().smembers(followers(user)).await?)
    }
}

fn follows(user: i64) -> String {
    format!("site:follows:{user}")
}

fn followers(user: i64) -> String {
    format!("site:followers:{user}")
}
