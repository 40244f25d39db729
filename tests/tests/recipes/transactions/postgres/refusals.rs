//! Tests of transactions in which a lock would exclude nobody.

use tests::faults::connected;
use tests::{Postgres, PostgresServer};
use tokio_postgres::IsolationLevel;

use super::super::refusals::take_forced;
use super::super::{
    Driver, LONG, Open, assert_refused, free_within, in_time, is_given_back_after, scene, take,
    take_within, undriven,
};
use super::Tx;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_only_read_or_are_elsewhere_are_refused() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    let reader = one.build_transaction().read_only(true).start();
    let mut reader = Tx(reader.await.unwrap());
    let taken = take(&locks, &mut reader, "k").await;
    assert_refused(taken, "the transaction failed");
    drop(reader);

    // Another database has the same names.
    let elsewhere = PostgresServer::start();
    let there = format!("{}?lock_table={}", elsewhere.url(), table.name());
    let builder = tests::builder().ensure_schema(true);
    let theirs = connected(builder, &there).await;
    free_within(&theirs, "k", LONG).await;
    free_within(&locks, "k", LONG).await;
    let mut stranger = Postgres::open(&elsewhere.url()).await;
    let mut transaction = Postgres::begin(&mut stranger).await;
    is_given_back_after(&table, async || {
        let taken = take(&locks, &mut transaction, "k").await;
        assert_refused(taken, "does not see the lock");
    })
    .await;
    transaction.rollback().await;
    let strict = stranger.build_transaction();
    let strict = strict.isolation_level(IsolationLevel::RepeatableRead);
    let mut strict = Tx(strict.start().await.unwrap());
    let taken = in_time(async || undriven(take(&locks, &mut strict, "k").await)).await;
    assert_refused(taken, "in the database of this lock manager");
    drop(strict);
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

#[tokio::test]
async fn a_strict_transaction_that_has_read_before_is_refused() {
    let (table, locks, mut one, two) = scene::<Postgres>().await;
    let counter = format!("{}_counter", table.name());
    let made = format!("CREATE TABLE {counter} AS SELECT 0::bigint AS n");
    two.batch_execute(&made).await.unwrap();
    let read = format!("SELECT n FROM {counter}");
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        free_within(&locks, "k", LONG).await;
        let early = one.build_transaction().isolation_level(level).start();
        let mut early = Tx(early.await.unwrap());
        early.number(&read).await;
        // The holder before this transaction writes after the transaction's first look.
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.batch_execute(&format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        let taken = in_time(async || undriven(take(&locks, &mut early, "k").await)).await;
        assert_refused(taken, "before it reads anything");
        early.rollback().await;
        let again = one.build_transaction().isolation_level(level).start();
        let mut again = Tx(again.await.unwrap());
        take_within(&locks, &mut again, "k", LONG).await.unwrap();
        again.commit().await;
    }
}

/// The transaction made no mistake, so another one is worth a try.
#[tokio::test]
async fn a_forced_release_does_not_blame_a_strict_transaction() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    let level = IsolationLevel::RepeatableRead;
    let mine = one.build_transaction().isolation_level(level).start();
    let mut mine = Tx(mine.await.unwrap());
    let refused = take_forced(&locks, &mut mine).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    mine.rollback().await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}
