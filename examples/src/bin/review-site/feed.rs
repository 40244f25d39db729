//! A feed: a review is pushed to those who follow its author, who read it page by page.
//!
//! `site:feed:{user}` is a sorted set of reviews by their time in ms, the latest 1,000. A page begins behind the last entry
//! that the reader has seen, which is a time and an id: with a page's number instead, each new entry would push one from
//! the first page to the second, and it would be read twice; with the time alone, entries of the same ms would be skipped
//! or repeated.
//!
//! No lock: to push a review twice is to push it once. A page is one script (`feed_page.lua`).

use std::str::FromStr;

use axum::http::StatusCode;
use redis::Script;

use crate::error::Error;
use crate::site::Redis;

/// The most entries of a feed.
const KEPT: isize = 1000;

#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) redis: Redis,
}

/// A place in a feed: the entry that was seen last. As text `time-id`, or `new` for the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) time: i64,
    pub(crate) review: i64,
}

impl Seen {
    pub(crate) const NOTHING: Seen = Seen {
        // The largest number that Redis sorts by exactly.
        time: 1 << 53,
        review: i64::MAX,
    };
}

impl FromStr for Seen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Seen, Error> {
        let seen = match text.split_once('-') {
            None if text == "new" => Some(Seen::NOTHING),
            None => None,
            Some((time, review)) => time
                .parse()
                .ok()
                .zip(review.parse().ok())
                .map(|(time, review)| Seen { time, review }),
        };
        seen.ok_or(Error::Refused(
            StatusCode::BAD_REQUEST,
            "a place in a feed is `new` or `time-id`",
        ))
    }
}

impl Feed {
    /// Pushes a review to the feeds of these users.
    pub(crate) async fn push(&self, entry: Seen, followers: &[i64]) -> Result<(), Error> {
        // In pieces, for an author may have a million followers and Redis answers nobody else meanwhile.
        for followers in followers.chunks(500) {
            let mut push = redis::pipe();
            for follower in followers {
                let key = key(*follower);
                push.zadd(&key, member(entry.review), entry.time).ignore();
                push.zremrangebyrank(&key, 0, -KEPT - 1).ignore();
            }
            push.exec_async(&mut self.redis.clone()).await?;
        }
        Ok(())
    }

    /// Returns up to `many` entries that come after `seen`, the latest first.
    pub(crate) async fn page(&self, user: i64, seen: Seen, many: u32) -> Result<Vec<Seen>, Error> {
        let page = Script::new(include_str!("feed_page.lua"));
        let mut page = page.key(key(user));
        page.arg(seen.time).arg(member(seen.review)).arg(many);
        let entries: Vec<(i64, i64)> = page.invoke_async(&mut self.redis.clone()).await?;
        let entries = entries.into_iter();
        Ok(entries
            .map(|(review, time)| Seen { time, review })
            .collect())
    }
}

/// Of equal length, so that the order of texts, which Redis gives to entries of the same time, is the order of ids.
fn member(review: i64) -> String {
    format!("{review:019}")
}

fn key(user: i64) -> String {
    format!("site:feed:{user}")
}
