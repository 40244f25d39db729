//! Tests of what locks inside transactions do on MariaDB alone.

#[path = "../../mysql_adapter.rs"]
mod adapter;
mod ends;
mod refusals;

use std::time::Duration;

use lock_runtime::{SqlDialect, SqlTransaction};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, Opts, Transaction, TxOpts};
use tests::Mariadb;
use tests::mariadb::NOW;
use tokio::task::JoinSet;

use self::adapter::Tx;
use super::{
    Driver, HOUR, KEPT, LONG, MS, Open, free_within, manager, others_go_on, scene, take,
    take_within, waits,
};

/// A transaction that has begun, which the lines of the page only borrow.
pub(super) struct Owned<'c>(Transaction<'c>);

impl SqlTransaction for Owned<'_> {
    type Error = Error;
    const DIALECT: SqlDialect = SqlDialect::Mysql;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        Tx(&mut self.0).ask(sql, params).await
    }
}

impl Open for Owned<'_> {
    async fn number(&mut self, query: &str) -> i64 {
        let number: Option<i64> = self.0.query_first(query).await.unwrap();
        number.unwrap()
    }

    async fn execute(&mut self, statement: &str) {
        self.0.query_drop(statement).await.unwrap();
    }

    async fn commit(self) {
        self.0.commit().await.unwrap();
    }

    async fn rollback(self) {
        self.0.rollback().await.unwrap();
    }
}

impl Driver for Mariadb {
    const SCHEME: &'static str = "mysql://";
    const FREE_AFTER_COMMIT: Duration = LONG;
    const NAME_TYPE: &'static str = "VARBINARY(512)";
    const UPDATES: (i64, i64) = (6, 25);
    const NOW: &'static str = NOW;

    type Client = Conn;
    type Transaction<'c> = Owned<'c>;

    async fn open(url: &str) -> Conn {
        let url = url.split('?').next().unwrap();
        let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
        // A session of the program's own has other settings than the library's sessions.
        let own = "SET time_zone = '-07:00', sql_mode = '', NAMES latin1";
        let (first, names) = own.rsplit_once(", ").unwrap();
        conn.query_drop(first).await.unwrap();
        conn.query_drop(format!("SET {names}")).await.unwrap();
        conn
    }

    async fn begin(conn: &mut Conn) -> Owned<'_> {
        Owned(conn.start_transaction(TxOpts::default()).await.unwrap())
    }

    /// At `REPEATABLE READ`, the first lock is the only one.
    async fn begin_for_several(conn: &mut Conn) -> Owned<'_> {
        let mut options = TxOpts::default();
        options.with_isolation_level(Some(IsolationLevel::ReadCommitted));
        Owned(conn.start_transaction(options).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_a_short_transaction_frees_its_lock_for_waiters() {
    let (table, locks, mut one, mut two) = scene::<Mariadb>().await;
    let other = manager(&table).await;
    for _ in 0..3 {
        let mut mine = Mariadb::begin(&mut one).await;
        take(&locks, &mut mine, "k").await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
        waits(&other, "k").await;
        mine.commit().await;
        let guard = waiter.await.unwrap().unwrap();

        let mut theirs = Mariadb::begin(&mut two).await;
        let (taken, ()) = tokio::join!(take_within(&locks, &mut theirs, "k", LONG), async {
            tokio::time::sleep(200 * MS).await;
            guard.release().await.unwrap();
        });
        taken.unwrap();
        theirs.commit().await;
        // The lock is free at once, and not only when the lease by which the transaction came to it is over.
        free_within(&locks, "k", Duration::ZERO).await;
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_locks_are_taken_renewed_and_freed_beside_transactions() {
    let (table, locks, ..) = scene::<Mariadb>().await;
    let kept = locks.mutex("kept").lease(KEPT).acquire().await.unwrap();
    // There are more transactions than a manager has connections.
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(Mariadb::open(&table.url()).await);
    }
    let mut open = Vec::new();
    for (n, conn) in clients.iter_mut().enumerate() {
        let mut transaction = Mariadb::begin(conn).await;
        let taken = take(&locks, &mut transaction, &format!("k{n}")).await;
        taken.unwrap();
        open.push(transaction);
    }
    let mut waiters = JoinSet::new();
    for n in 0..12 {
        waiters.spawn(locks.mutex(format!("k{n}")).wait(HOUR).acquire());
    }
    others_go_on(&table, &locks, &kept).await;
    kept.release().await.unwrap();
    for transaction in open {
        transaction.commit().await;
    }
    while let Some(guard) = waiters.join_next().await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    table.assert_clean().await;
}

#[test]
fn the_page_shows_the_lines_that_are_tested() {
    let page = include_str!("../../../../../docs/mysql.md");
    let lines = include_str!("../../mysql_adapter.rs");
    let (_, lines) = lines.split_once("\n\n").unwrap();
    let lines = lines.replace("pub(super) ", "");
    assert!(
        page.contains(lines.trim()),
        "docs/mysql.md has not:\n{lines}"
    );
}
