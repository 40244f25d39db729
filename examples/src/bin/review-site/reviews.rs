//! Reviews: a row, and then an entry in the feed of everybody who follows the author.
//!
//! No lock: a review is a row of its own. If the process dies between row and feed, followers miss one entry of a feed; a
//! site to which that matters puts the review on a stream first, as `sale_stream.rs` does with orders.

use std::time::{SystemTime, UNIX_EPOCH};

use examples::Sqlite;
use rusqlite::OptionalExtension;
use serde::Serialize;

use lock_runtime::Ids;

use crate::error::Error;
use crate::feed::{Feed, Seen};
use crate::follows::Follows;

pub(crate) const SCHEMA: &str = "CREATE TABLE reviews (
    id INTEGER PRIMARY KEY, shop INTEGER NOT NULL, author INTEGER NOT NULL, text TEXT NOT NULL
);";

#[derive(Clone)]
pub(crate) struct Reviews {
    pub(crate) database: Sqlite,
    pub(crate) ids: Ids,
    pub(crate) follows: Follows,
    pub(crate) feed: Feed,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Review {
    pub(crate) id: i64,
    pub(crate) shop: i64,
    pub(crate) author: i64,
    pub(crate) text: String,
}

impl Reviews {
    /// Writes a review, and tells those who follow the author. Returns its id.
    pub(crate) async fn write(&self, shop: i64, author: i64, text: String) -> Result<i64, Error> {
        let id = self.ids.next().await?;
        let insert = "INSERT INTO reviews VALUES (?1, ?2, ?3, ?4)";
        let written = self
            .database
            .transaction(move |it| it.execute(insert, (id, shop, author, text)));
        written.await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = now.map_or(0, |since| since.as_millis() as i64);
        let followers = self.follows.followers(author).await?;
        self.feed
            .push(Seen { time, review: id }, &followers)
            .await?;
        Ok(id)
    }

    pub(crate) async fn read(&self, id: i64) -> Result<Option<Review>, Error> {
        let select = "SELECT shop, author, text FROM reviews WHERE id = ?1";
        let found = self.database.call(move |it| {
            let review = it.prepare_cached(select)?.query_row([id], |row| {
                Ok(Review {
                    id,
                    shop: row.get(0)?,
                    author: row.get(1)?,
                    text: row.get(2)?,
                })
            });
            review.optional()
        });
        Ok(found.await?)
    }
}
