//! Tests of transactions in which a lock would exclude nobody.

use lock_runtime::{LockManager, SqlDialect, SqlTransaction};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, TxOpts};
use tests::mysql::is_meant;
use tests::{MariadbServer, MariadbTable, PostgresServer};

use super::{
    LONG, MS, SOON, Taken, Tx, begin, client, free_within, is_busy, scene, take, take_within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_exclude_others_is_refused_with_what_to_do() {
    let (table, locks, mut one, _) = scene().await;
    let refused = async |taken: Taken, names: &str| {
        let error = taken.unwrap_err();
        assert!(error.to_string().contains(names), "{error}");
        assert!(!error.is_retryable(), "{error}");
    };
    let mut read_only = TxOpts::default();
    read_only.with_readonly(Some(true));
    let mut reader = one.start_transaction(read_only).await.unwrap();
    let taken = take(&locks, &mut reader, "k").await;
    refused(taken, "the transaction failed").await;
    reader.rollback().await.unwrap();
    free_within(&locks, "k", LONG).await;

    let mut mine = begin(&mut one).await;
    for request in [locks.read("k"), locks.write("k"), locks.fair("k")] {
        let taken = request.in_transaction(&mut Tx(&mut mine)).await;
        refused(taken, "takes mutexes and fenced locks").await;
    }
    let memory = LockManager::in_memory();
    refused(take(&memory, &mut mine, "k").await, "mysql://").await;
    let postgres = PostgresServer::start();
    let builder = LockManager::builder().ensure_schema(true);
    let postgres = builder.connect(&postgres.url()).await.unwrap();
    refused(take(&postgres, &mut mine, "k").await, "mysql://").await;
    let reader = locks.read("shared").acquire().await.unwrap();
    refused(take(&locks, &mut mine, "shared").await, "shared").await;
    reader.release().await.unwrap();
    take(&locks, &mut mine, "shared").await.unwrap();
    // A transaction has its lock once.
    assert!(is_busy(&take(&locks, &mut mine, "shared").await));
    mine.rollback().await.unwrap();

    // Another server has the same names.
    let elsewhere = MariadbServer::start();
    let there = format!("{}?lock_table={}", elsewhere.url(), table.name());
    let builder = LockManager::builder().ensure_schema(true);
    let theirs = builder.connect(&there).await.unwrap();
    free_within(&theirs, "k", LONG).await;
    let held = theirs.mutex("k").acquire().await.unwrap();
    let mut stranger = client(&elsewhere.url()).await;
    let mut transaction = begin(&mut stranger).await;
    let taken = take(&locks, &mut transaction, "k").await;
    refused(taken, "does not see the lock").await;
    transaction.rollback().await.unwrap();
    held.release().await.unwrap();
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

#[tokio::test]
async fn a_transaction_may_be_in_another_database_of_the_server() {
    let (table, locks, ..) = scene().await;
    let elsewhere = format!("elsewhere_{}", table.name());
    table
        .server()
        .query(&format!("CREATE DATABASE {elsewhere}"));
    let url = table
        .server()
        .url()
        .replace("/locks", &format!("/{elsewhere}"));
    let mut conn = client(&url).await;
    let mut transaction = begin(&mut conn).await;
    take(&locks, &mut transaction, "k").await.unwrap();
    transaction.commit().await.unwrap();
    free_within(&locks, "k", LONG).await;
}

/// Creates a table of the program's own with a zero in its column `n`, and returns its name.
async fn counter(table: &MariadbTable, conn: &mut Conn) -> String {
    let name = format!("{}_counter", table.name());
    let made = format!("CREATE TABLE {name} ENGINE = InnoDB SELECT 0 AS n");
    conn.query_drop(made).await.unwrap();
    name
}

#[tokio::test]
async fn a_transaction_that_has_read_before_it_has_the_lock_is_to_be_repeated() {
    let (table, locks, mut one, mut two) = scene().await;
    let counter = counter(&table, &mut two).await;
    let read = format!("SELECT n FROM {counter}");
    // With the second setting, which is the default of MariaDB 11.6, the server refuses by itself. MySQL has none.
    for (setting, says) in [("OFF", "roll it back"), ("ON", "Record has changed")] {
        match (is_meant(), setting) {
            (true, "ON") => break,
            (true, _) => {}
            (false, _) => {
                let set = format!("SET innodb_snapshot_isolation = {setting}");
                one.query_drop(set).await.unwrap();
            }
        }
        free_within(&locks, "k", LONG).await;
        // This is `REPEATABLE READ`, which is the default.
        let mut early = begin(&mut one).await;
        let _: Option<i64> = early.query_first(&read).await.unwrap();
        // The holder before this transaction writes after the transaction's first look.
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.query_drop(format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        let refused = take(&locks, &mut early, "k").await.unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert_eq!(refused.is_retryable(), setting == "OFF", "{refused}");
        early.rollback().await.unwrap();
        let mut again = begin(&mut one).await;
        take_within(&locks, &mut again, "k", LONG).await.unwrap();
        let second = take(&locks, &mut again, "another").await;
        assert!(second.is_err(), "it sees nothing newer than the first one");
        let _: Option<i64> = again.query_first(&read).await.unwrap();
        again.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_of_each_isolation_sees_what_the_holder_before_it_wrote() {
    let (table, locks, mut one, mut two) = scene().await;
    let counter = counter(&table, &mut two).await;
    for (round, level) in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ]
    .into_iter()
    .enumerate()
    {
        let mut options = TxOpts::default();
        options.with_isolation_level(Some(level));
        let mut mine = one.start_transaction(options).await.unwrap();
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.query_drop(format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        take(&locks, &mut mine, "k").await.unwrap();
        let read = format!("SELECT n FROM {counter}");
        let n: Option<usize> = mine.query_first(read).await.unwrap();
        assert_eq!(n, Some(round + 1));
        mine.commit().await.unwrap();
        free_within(&locks, "k", LONG).await;
    }
    table.assert_clean().await;
}

/// A transaction whose statements come after the lease that they were to take over.
struct Late<'t, 'c>(Tx<'t, 'c>, u32);

impl SqlTransaction for Late<'_, '_> {
    type Error = Error;
    const DIALECT: SqlDialect = SqlDialect::Mysql;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        self.1 += 1;
        tokio::time::sleep(2_200 * MS).await;
        self.0.ask(sql, params).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_was_too_slow_is_told_to_end_and_asks_no_more() {
    let (_table, locks, mut one, _) = scene().await;
    let mut mine = begin(&mut one).await;
    let mut late = Late(Tx(&mut mine), 0);
    let taken = locks.mutex("k").wait(LONG).in_transaction(&mut late).await;
    let error = taken.unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
    assert!(error.to_string().contains("roll it back"), "{error}");
    assert_eq!(late.1, 1);
    mine.rollback().await.unwrap();
    free_within(&locks, "k", SOON).await;
}
