//! Ids of 64 bits that all processes draw: unique, positive, and roughly ordered by time.
//!
//! `site:ids:{name}` is a hash with the last id. The upper 31 bits of an id are the seconds since 2026, the lower 32 begin
//! each second from the microseconds of the server's clock, times 4,294. A counter of a day, as services write it by hand,
//! is full after 72 minutes at a million ids a second, and starts anew when Redis loses its data; this one has moved on
//! with the clock by then. Nobody can read from an id how many orders there are a day.
//!
//! No lock: one script looks at the clock and at the last id, and Redis runs one script at a time.

use redis::Script;

use crate::error::Error;
use crate::site::Redis;

#[derive(Clone)]
pub(crate) struct Ids {
    pub(crate) redis: Redis,
    pub(crate) name: &'static str,
}

impl Ids {
    /// Draws an id. Each is larger than those that were drawn before it.
    pub(crate) async fn next(&self) -> Result<i64, Error> {
        let draw = Script::new(include_str!("draw_id.lua"));
        let key = format!("site:ids:{}", self.name);
        let (second, low): (i64, i64) = draw.key(key).invoke_async(&mut self.redis.clone()).await?;
        Ok(second << 32 | low)
    }
}
