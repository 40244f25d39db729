//! The orders, in a SQLite file.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_runtime::FencingToken;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// The number of connections that a process opens at most.
const CONNECTIONS: u32 = 4;

/// The schema. It has no UNIQUE (coupon, user) and no trigger on the stock: this service relies on its lock, as a
/// service must whose stock, orders and payments live in different systems.
const SCHEMA: &str = "
    CREATE TABLE coupons (name TEXT PRIMARY KEY, stock INTEGER NOT NULL);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, coupon TEXT NOT NULL, user INTEGER NOT NULL, token INTEGER
    );
    CREATE INDEX orders_by_user ON orders (coupon, user);
    CREATE INDEX orders_by_token ON orders (coupon, token);";

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    /// SQLite returned an error.
    #[error("the database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The runtime gave up the call.
    #[error("the database call did not end: {0}")]
    Abandoned(#[from] JoinError),
}

/// A database file, with a few connections to it that are opened when they are first needed. Clones share them.
#[derive(Clone)]
pub(crate) struct Database {
    path: Arc<Path>,
    idle: Arc<Mutex<Vec<Connection>>>,
    limit: Arc<Semaphore>,
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
            path: path.into(),
            idle: Arc::default(),
            limit: Arc::new(Semaphore::new(CONNECTIONS as usize)),
        }
    }

    /// Creates a file with one coupon in it.
    pub(crate) async fn create(
        path: &Path,
        coupon: &str,
        stock: u32,
    ) -> Result<Database, DatabaseError> {
        let database = Database::open(path);
        let coupon = coupon.to_owned();
        database
            .call(move |connection| {
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.execute_batch(SCHEMA)?;
                connection.execute(
                    "INSERT INTO coupons VALUES (?1, ?2)",
                    params![coupon, stock],
                )
            })
            .await?;
        Ok(database)
    }

    /// Returns how many coupons are left: a negative number if too many were sold, `None` if there is no such coupon.
    pub(crate) async fn left(&self, coupon: &str) -> Result<Option<i64>, DatabaseError> {
        let coupon = coupon.to_owned();
        self.call(move |connection| {
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
    pub(crate) async fn has_ordered(&self, coupon: &str, user: u32) -> Result<bool, DatabaseError> {
        let coupon = coupon.to_owned();
        self.call(move |connection| {
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
    ) -> Result<Option<i64>, DatabaseError> {
        let coupon = coupon.to_owned();
        self.call(move |connection| {
            let token = token.map(i64::from);
            let transaction =
                Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            // This is the fence: the write may come after its caller has lost the lock, but not after a later holder
            // has written.
            let overtaken = transaction
                .prepare_cached("SELECT 1 FROM orders WHERE coupon = ?1 AND token > ?2")?
                .exists(params![coupon, token])?;
            if overtaken {
                return Ok(None);
            }
            transaction
                .prepare_cached("INSERT INTO orders (coupon, user, token) VALUES (?1, ?2, ?3)")?
                .execute(params![coupon, user, token])?;
            let order = transaction.last_insert_rowid();
            // This commits before the lock is given back: a later commit would not be protected by the lock.
            transaction.commit()?;
            Ok(Some(order))
        })
        .await
    }

    /// Counts the orders and the users that bought.
    pub(crate) async fn totals(&self, coupon: &str) -> Result<Totals, DatabaseError> {
        let coupon = coupon.to_owned();
        self.call(move |connection| {
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
        let all = self.limit.acquire_many(CONNECTIONS).await;
        let idle = std::mem::take(&mut *self.idle());
        drop((idle, all));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on a connection, on a thread that may block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let permit = self.limit.clone().acquire_owned().await;
        let database = self.clone();
        let call = tokio::task::spawn_blocking(move || {
            let reused = database.idle().pop();
            let connection = reused.map_or_else(|| connect(&database.path), Ok)?;
            let result = work(&connection);
            database.idle().push(connection);
            // The permit is dropped here, not in the caller, because a caller that is dropped does not stop this
            // thread.
            drop(permit);
            result
        });
        Ok(call.await??)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}
