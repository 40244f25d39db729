//! A SQLite file for code that is async: a few connections, each lent to one call at a time.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// The number of connections that a process opens at most.
const CONNECTIONS: u32 = 4;

/// The time that a transaction waits for those of other processes.
const PATIENCE: Duration = Duration::from_secs(10);

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// SQLite returned an error.
    #[error("the database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The runtime gave up the call.
    #[error("the database call did not end: {0}")]
    Abandoned(#[from] JoinError),
}

/// A database file, with connections to it that are opened when they are first needed. Clones share them. Several
/// processes may use one file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    path: Arc<Path>,
    idle: Arc<Mutex<Vec<Connection>>>,
    limit: Arc<Semaphore>,
}

impl Sqlite {
    /// Opens a file that exists.
    pub fn open(path: &Path) -> Sqlite {
        Sqlite {
            path: path.into(),
            idle: Arc::default(),
            limit: Arc::new(Semaphore::new(CONNECTIONS as usize)),
        }
    }

    /// Creates a file with this schema. Readers and one writer can use it at the same time (WAL).
    ///
    /// # Errors
    /// If SQLite refuses the file or the schema.
    pub async fn create(path: &Path, schema: &str) -> Result<Sqlite, SqliteError> {
        let database = Sqlite::open(path);
        let schema = schema.to_owned();
        database
            .call(move |connection| {
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.execute_batch(&schema)
            })
            .await?;
        Ok(database)
    }

    /// Runs `work` on a connection, on a thread that may block. If the caller is dropped, `work` still runs to its end.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SqliteError> {
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

    /// Runs `work` in a transaction, alone among those that write, and commits it if `work` returns `Ok`.
    ///
    /// It begins as a writer (`BEGIN IMMEDIATE`): SQLite cannot always make a writer of one that has read.
    ///
    /// # Errors
    /// Those of `work` and of the commit; then nothing was written.
    pub async fn transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SqliteError> {
        self.call(move |connection| {
            let transaction =
                Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
        .await
    }

    /// Waits for all calls, even those that nobody waits for any more, and closes the connections.
    pub async fn close(&self) {
        let all = self.limit.acquire_many(CONNECTIONS).await;
        let idle = std::mem::take(&mut *self.idle());
        drop((idle, all));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}
