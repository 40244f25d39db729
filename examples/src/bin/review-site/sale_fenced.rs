//! The flash sale, in one transaction that raises the fence of its lock first.
//!
//! **The lock** `site:sale:fenced:user:{user}` puts the clicks of a user in an order, over all processes: buy, cancel, buy.
//! Without it, the transaction alone would keep the rows right, but not that order: a click that was on its way for a
//! minute would buy again what was cancelled since.
//!
//! A lease cannot promise that order either: its holder may be paused, and its transaction come late. So each hold's
//! fencing token goes into the transaction, whose first statement compares it with the highest one so far
//! ([fencing](../../../../docs/fencing.md)): the database refuses what comes after a later holder.

use axum::http::StatusCode;
use examples::Sqlite;
use lock_runtime::{FencingToken, Ids, LockManager, distributed_lock};
use rusqlite::Transaction;

use crate::error::Error;
use crate::sale::{self, Answer};

pub(crate) const SALE: &str = "fenced";

pub(crate) const SCHEMA: &str =
    "CREATE TABLE fences (lock_name TEXT PRIMARY KEY, token INTEGER NOT NULL);";

#[derive(Clone)]
pub(crate) struct FencedSale {
    pub(crate) database: Sqlite,
    pub(crate) locks: LockManager,
    pub(crate) ids: Ids,
}

impl FencedSale {
    #[distributed_lock(
        key = "site:sale:fenced:user:{user}",
        wait = "30s",
        manager = self.locks,
        guard = lease
    )]
    pub(crate) async fn buy(&self, user: i64) -> Result<Answer, Error> {
        self.order(user, lease.fencing_token()).await
    }

    /// Gives the piece back. Returns whether there was an order.
    #[distributed_lock(
        key = "site:sale:fenced:user:{user}",
        wait = "30s",
        manager = self.locks,
        guard = lease
    )]
    pub(crate) async fn cancel(&self, user: i64) -> Result<bool, Error> {
        let delete = "DELETE FROM orders WHERE sale = ?1 AND user = ?2";
        self.fenced(user, lease.fencing_token(), move |it| {
            let deleted = it.execute(delete, (SALE, user))?;
            let back = "UPDATE sales SET stock = stock + ?2 WHERE name = ?1";
            it.execute(back, (SALE, deleted))?;
            Ok(deleted > 0)
        })
        .await
    }

    /// Orders under a lock that was held with this token, and may be lost by now.
    pub(crate) async fn order(
        &self,
        user: i64,
        token: Option<FencingToken>,
    ) -> Result<Answer, Error> {
        let id = self.ids.next().await?;
        self.fenced(user, token, move |it| {
            if sale::has_ordered(it, SALE, user)? {
                return Ok(Answer::AlreadyOrdered);
            }
            sale::take_one(it, SALE, user, id)
        })
        .await
    }

    /// Runs `work` in a transaction, unless a later holder of the user's lock was here before.
    async fn fenced<T: Send + 'static>(
        &self,
        user: i64,
        token: Option<FencingToken>,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let lock = format!("site:sale:fenced:user:{user}");
        let raise = "INSERT INTO fences VALUES (?1, ?2)
            ON CONFLICT (lock_name) DO UPDATE SET token = excluded.token
            WHERE fences.token <= excluded.token";
        let done = self.database.transaction(move |it| {
            match it
                .prepare_cached(raise)?
                .execute((lock, token.map(i64::from)))?
            {
                0 => Ok(None),
                _ => work(it).map(Some),
            }
        });
        let why = "too late: a later click of yours was faster";
        done.await?.ok_or(Error::Refused(StatusCode::CONFLICT, why))
    }
}
