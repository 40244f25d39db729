//! Tests of the recipes for SQLite. Each connection of a meter is to a file.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_runtime::FencingToken;
use rusqlite::{Connection, OptionalExtension, params};
use tempfile::TempDir;
use tests::documented_recipe;

use crate::meter::{
    Meter, keeps_the_highest_of_many_writes_at_once,
    refuses_a_paused_holder_once_the_next_one_has_read, token,
};

/// Returns PostgreSQL's statement with `?1` for `$1`, as the page says.
fn recipe(title: &str) -> String {
    documented_recipe("PostgreSQL", title).replace('$', "?")
}

const WRITE: &str = "Write";
const WRITE_OR_INSERT: &str = "Write, also the first time";

struct SqliteMeter {
    connection: Mutex<Connection>,
    write: String,
}

impl SqliteMeter {
    fn open(directory: &Path, write: &str) -> Self {
        let connection = Connection::open(directory.join("meters.sqlite")).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
            .pragma_update(None, "synchronous", "OFF")
            .unwrap();
        Self {
            connection: Mutex::new(connection),
            write: recipe(write),
        }
    }

    fn execute(&self, sql: &str, token: FencingToken, value: i64) -> usize {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connection
            .execute(sql, params!["gas", i64::from(token), value])
            .unwrap()
    }
}

impl Meter for SqliteMeter {
    async fn raise_and_read(&self, token: FencingToken) -> Option<i64> {
        let sql = recipe("Raise the fence and read");
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let row = connection.query_one(&sql, params!["gas", i64::from(token)], |row| row.get(0));
        row.optional().unwrap()
    }

    async fn write(&self, token: FencingToken, value: i64) -> bool {
        self.execute(&self.write, token, value) == 1
    }
}

/// Creates a file with the meter in it, which belongs to nobody yet, and returns its directory.
fn file() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let meter = SqliteMeter::open(directory.path(), WRITE_OR_INSERT);
    let connection = meter.connection.lock().unwrap();
    connection.execute_batch(&recipe("The table")).unwrap();
    drop(connection);
    assert_eq!(meter.execute(&meter.write, token(0), 0), 1);
    directory
}

#[tokio::test]
async fn sqlite_refuses_a_paused_holder_once_the_next_one_has_read() {
    for write in [WRITE, WRITE_OR_INSERT] {
        let directory = file();
        let meter = SqliteMeter::open(directory.path(), write);
        refuses_a_paused_holder_once_the_next_one_has_read(&meter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_keeps_the_highest_of_many_writes_at_once() {
    for write in [WRITE, WRITE_OR_INSERT] {
        let directory = file();
        let connections = (0..8).map(|_| SqliteMeter::open(directory.path(), write));
        keeps_the_highest_of_many_writes_at_once(connections.collect()).await;
    }
}

#[test]
fn sqlite_raises_the_fence_of_a_lock_and_never_lowers_it() {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(&recipe("The table of fences"))
        .unwrap();
    let raise = recipe("Raise the fence of a lock");
    let raised = [33, 34, 33, 34, 35].map(|number| {
        let token = i64::from(token(number));
        connection
            .execute(&raise, params!["meter:gas", token])
            .unwrap()
    });
    assert_eq!(raised, [1, 1, 0, 1, 1]);
    // The fence of another lock is another fence.
    let other = connection.execute(&raise, params!["meter:water", 1]);
    assert_eq!(other, Ok(1));
}
