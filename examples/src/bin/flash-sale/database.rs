//! The orders, in a SQLite file.

use std::path::Path;

use examples::{Sqlite, SqliteError};
use lock_runtime::FencingToken;
use rusqlite::{OptionalExtension, params};

/// The schema. It has no UNIQUE (coupon, user) and no trigger on the stock: this service relies on its lock, as a
/// service must whose stock, orders and payments live in different systems.
const SCHEMA: &str = "
    CREATE TABLE coupons (name TEXT PRIMARY KEY, stock INTEGER NOT NULL);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, coupon TEXT NOT NULL, user INTEGER NOT NULL, token INTEGER
    );
    CREATE INDEX orders_by_user ON orders (coupon, user);
    CREATE INDEX orders_by_token ON orders (coupon, token);";

/// The database of a sale. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Database {
    file: Sqlite,
}

/// The results of a coupon's sale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) orders: u64,
    pub(crate) buyers: u64,
}

impl Database {
    /// Opens a file that exists.
    pub(crate) fn open(path: &Path) -> Database {
        Database {
            file: Sqlite::open(path),
        }
    }

    /// Creates a file with one coupon in it.
    pub(crate) async fn create(
        path: &Path,
        coupon: &str,
        stock: u32,
    ) -> Result<Database, SqliteError> {
        let file = Sqlite::create(path, SCHEMA).await?;
        let coupon = coupon.to_owned();
        file.call(move |connection| {
            connection.execute(
                "INSERT INTO coupons VALUES (?1, ?2)",
                params![coupon, stock],
            )
        })
        .await?;
        Ok(Database { file })
    }

    /// Returns how many coupons are left: a negative number if too many were sold, `None` if there is no such coupon.
    pub(crate) async fn left(&self, coupon: &str) -> Result<Option<i64>, SqliteError> {
        let coupon = coupon.to_owned();
        self.file
            .call(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT stock - (SELECT count(*) FROM orders WHERE coupon = ?1)
                     FROM coupons WHERE name = ?1",
                    )?
                    .query_row([coupon], |row| row.get(0))
                    .optional()
            })
            .await
    }

    /// Returns whether the user has ordered before.
    pub(crate) async fn has_ordered(&self, coupon: &str, user: u32) -> Result<bool, SqliteError> {
        let coupon = coupon.to_owned();
        self.file
            .call(move |connection| {
                connection
                    .prepare_cached("SELECT 1 FROM orders WHERE coupon = ?1 AND user = ?2")?
                    .exists(params![coupon, user])
            })
            .await
    }

    /// Writes an order and returns its number, or `None` if a later holder of the lock has written already.
    pub(crate) async fn insert(
        &self,
        coupon: &str,
        user: u32,
        token: Option<FencingToken>,
    ) -> Result<Option<i64>, SqliteError> {
        let coupon = coupon.to_owned();
        let token = token.map(i64::from);
        self.file
            .transaction(move |transaction| {
                // This is the fence: the write may come after its caller has lost the lock, but not after a later
                // holder has written. A later holder that has only read is not seen here: `postgres-fencing` raises
                // the fence before it reads, at the price of a second write.
                let overtaken = transaction
                    .prepare_cached("SELECT 1 FROM orders WHERE coupon = ?1 AND token > ?2")?
                    .exists(params![coupon, token])?;
                if overtaken {
                    return Ok(None);
                }
                transaction
                    .prepare_cached("INSERT INTO orders (coupon, user, token) VALUES (?1, ?2, ?3)")?
                    .execute(params![coupon, user, token])?;
                // The commit comes before the lock is given back: a later one would not be protected by it.
                Ok(Some(transaction.last_insert_rowid()))
            })
            .await
    }

    /// Counts the orders and the users that bought.
    pub(crate) async fn totals(&self, coupon: &str) -> Result<Totals, SqliteError> {
        let coupon = coupon.to_owned();
        self.file
            .call(move |connection| {
                connection.query_row(
                    "SELECT count(*), count(DISTINCT user) FROM orders WHERE coupon = ?1",
                    [coupon],
                    |row| {
                        Ok(Totals {
                            orders: row.get(0)?,
                            buyers: row.get(1)?,
                        })
                    },
                )
            })
            .await
    }

    /// Waits for all calls, even those that nobody waits for any more, and closes the connections.
    pub(crate) async fn close(&self) {
        self.file.close().await;
    }
}
