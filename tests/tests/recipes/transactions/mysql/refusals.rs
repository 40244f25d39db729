//! Tests of transactions in which a lock would exclude nobody.

use lock_runtime::{SqlDialect, SqlTransaction};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, TxOpts};
use tests::faults::connected;
use tests::mysql::is_meant;
use tests::{Mariadb, MariadbServer, MariadbTable, PostgresServer};

use super::super::{
    Driver, LONG, MS, Open, assert_refused, free_within, in_time, scene, take, take_within,
    undriven,
};
use super::Owned;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_only_read_or_are_elsewhere_are_refused() {
    let (table, locks, mut one, _) = scene::<Mariadb>().await;
    let mut read_only = TxOpts::default();
    read_only.with_readonly(Some(true));
    let mut reader = Owned(one.start_transaction(read_only).await.unwrap());
    let taken = take(&locks, &mut reader, "k").await;
    assert_refused(taken, "the transaction failed");
    reader.rollback().await;
    free_within(&locks, "k", LONG).await;

    let mut mine = Mariadb::begin(&mut one).await;
    let postgres = PostgresServer::start();
    let builder = tests::builder().ensure_schema(true);
    let postgres = connected(builder, &postgres.url()).await;
    assert_refused(take(&postgres, &mut mine, "k").await, Mariadb::SCHEME);
    mine.rollback().await;

    // Another server has the same names.
    let elsewhere = MariadbServer::start();
    let there = format!("{}?lock_table={}", elsewhere.url(), table.name());
    let builder = tests::builder().ensure_schema(true);
    let theirs = connected(builder, &there).await;
    free_within(&theirs, "k", LONG).await;
    let held = theirs.mutex("k").acquire().await.unwrap();
    let mut stranger = Mariadb::open(&elsewhere.url()).await;
    let taken = in_time(async || {
        let mut transaction = Mariadb::begin(&mut stranger).await;
        let taken = take(&locks, &mut transaction, "k").await;
        transaction.rollback().await;
        undriven(taken)
    });
    assert_refused(taken.await, "does not see the lock");
    held.release().await.unwrap();
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

#[tokio::test]
async fn a_transaction_may_be_in_another_database_of_the_server() {
    let (table, locks, ..) = scene::<Mariadb>().await;
    let elsewhere = format!("elsewhere_{}", table.name());
    table
        .server()
        .query(&format!("CREATE DATABASE {elsewhere}"));
    let url = table
        .server()
        .url()
        .replace("/locks", &format!("/{elsewhere}"));
    let mut conn = Mariadb::open(&url).await;
    let mut transaction = Mariadb::begin(&mut conn).await;
    take(&locks, &mut transaction, "k").await.unwrap();
    transaction.commit().await;
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
async fn a_transaction_that_reads_before_the_lock_must_be_repeated() {
    let (table, locks, mut one, mut two) = scene::<Mariadb>().await;
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
        let mut early = Mariadb::begin(&mut one).await;
        early.number(&read).await;
        // The holder before this transaction writes after the transaction's first look.
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.query_drop(format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        assert_refused(take(&locks, &mut early, "k").await, says);
        early.rollback().await;
        let mut again = Mariadb::begin(&mut one).await;
        take_within(&locks, &mut again, "k", LONG).await.unwrap();
        let second = take(&locks, &mut again, "another").await;
        assert!(second.is_err(), "it sees nothing newer than the first one");
        again.number(&read).await;
        again.commit().await;
    }
}

#[tokio::test]
async fn any_isolation_level_sees_the_writes_of_the_previous_holder() {
    let (table, locks, mut one, mut two) = scene::<Mariadb>().await;
    let counter = counter(&table, &mut two).await;
    for (n, level) in [
        (1, IsolationLevel::ReadCommitted),
        (2, IsolationLevel::RepeatableRead),
        (3, IsolationLevel::Serializable),
    ] {
        let mut options = TxOpts::default();
        options.with_isolation_level(Some(level));
        let mut mine = Owned(one.start_transaction(options).await.unwrap());
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.query_drop(format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        take(&locks, &mut mine, "k").await.unwrap();
        let read = format!("SELECT n FROM {counter}");
        assert_eq!(mine.number(&read).await, n);
        mine.commit().await;
        free_within(&locks, "k", LONG).await;
    }
    table.assert_clean().await;
}

/// A transaction whose statements come after the lease that they were to take over.
struct Late<'c>(Owned<'c>, u32);

impl SqlTransaction for Late<'_> {
    type Error = Error;
    const DIALECT: SqlDialect = SqlDialect::Mysql;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        self.1 += 1;
        tokio::time::sleep(2_200 * MS).await;
        self.0.ask(sql, params).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_too_slow_transaction_must_roll_back_and_sends_no_request() {
    let (_table, locks, mut one, _) = scene::<Mariadb>().await;
    let mut late = Late(Mariadb::begin(&mut one).await, 0);
    let taken = locks.mutex("k").wait(LONG).in_transaction(&mut late).await;
    let error = taken.unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
    assert!(error.to_string().contains("roll it back"), "{error}");
    assert_eq!(late.1, 1);
    late.0.rollback().await;
    free_within(&locks, "k", LONG).await;
}
