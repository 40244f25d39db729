//! Likes of a review: once each, taken back by a second click, and the first five who liked it.
//!
//! `site:likes:{review}` is a sorted set of users, by the time of their like.
//!
//! No lock: what is decided is in one key, so one script decides it (`toggle_like.lua`). A lock would cost two more round
//! trips, and protect nothing that the script does not.

use redis::{AsyncCommands, Script};

use crate::error::Error;
use crate::site::Redis;

#[derive(Clone)]
pub(crate) struct Likes {
    pub(crate) redis: Redis,
}

impl Likes {
    /// Likes the review, or takes the like back. Returns whether the user likes it now.
    pub(crate) async fn click(&self, review: i64, user: i64) -> Result<bool, Error> {
        let toggle = Script::new(include_str!("toggle_like.lua"));
        let mut toggle = toggle.key(key(review));
        Ok(toggle
            .arg(user)
            .invoke_async(&mut self.redis.clone())
            .await?)
    }

    pub(crate) async fn count(&self, review: i64) -> Result<u64, Error> {
        Ok(self.redis.clone().zcard(key(review)).await?)
    }

    /// Returns the five who liked it first.
    pub(crate) async fn first_five(&self, review: i64) -> Result<Vec<i64>, Error> {
        Ok(self.redis.clone().zrange(key(review), 0, 4).await?)
    }
}

fn key(review: i64) -> String {
    format!("site:likes:{review}")
}
