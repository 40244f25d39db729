//! Tests of transactions in which a lock would exclude nobody.

use lock_runtime::LockManager;
use tests::PostgresServer;
use tokio_postgres::IsolationLevel;

use super::{LONG, TOLD, Taken, Tx, client, free_within, is_busy, scene, take, take_within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_exclude_others_is_refused_with_what_to_do() {
    let (table, locks, mut one, _) = scene().await;
    let refused = async |taken: Taken, names: &str| {
        let error = taken.unwrap_err();
        assert!(error.to_string().contains(names), "{error}");
        assert!(!error.is_retryable(), "{error}");
    };
    let reader = one
        .build_transaction()
        .read_only(true)
        .start()
        .await
        .unwrap();
    refused(take(&locks, &reader, "k").await, "the transaction failed").await;
    drop(reader);

    let mine = one.transaction().await.unwrap();
    for request in [locks.read("k"), locks.write("k"), locks.fair("k")] {
        let taken = request.in_transaction(&mut Tx(&mine)).await;
        refused(taken, "takes mutexes and fenced locks").await;
    }
    refused(
        take(&LockManager::in_memory(), &mine, "k").await,
        "postgres://",
    )
    .await;
    let reader = locks.read("shared").acquire().await.unwrap();
    refused(take(&locks, &mine, "shared").await, "shared").await;
    reader.release().await.unwrap();
    take(&locks, &mine, "shared").await.unwrap();
    // A transaction has its lock once.
    assert!(is_busy(&take(&locks, &mine, "shared").await));
    mine.rollback().await.unwrap();

    // Another database has the same names.
    let elsewhere = PostgresServer::start();
    let there = format!("{}?lock_table={}", elsewhere.url(), table.name());
    let builder = LockManager::builder().ensure_schema(true);
    let theirs = builder.connect(&there).await.unwrap();
    free_within(&theirs, "k", LONG).await;
    free_within(&locks, "k", LONG).await;
    let mut stranger = client(&elsewhere.url()).await;
    let transaction = stranger.transaction().await.unwrap();
    refused(
        take(&locks, &transaction, "k").await,
        "does not see the lock",
    )
    .await;
    free_within(&locks, "k", TOLD).await;
    table.assert_clean().await;
}

#[tokio::test]
async fn a_strict_transaction_that_began_too_early_is_to_be_repeated() {
    let (table, locks, mut one, two) = scene().await;
    let counter = format!("{}_counter", table.name());
    let made = format!("CREATE TABLE {counter} AS SELECT 0::bigint AS n");
    two.batch_execute(&made).await.unwrap();
    let read = format!("SELECT n FROM {counter}");
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        free_within(&locks, "k", LONG).await;
        let early = one.build_transaction().isolation_level(level).start();
        let early = early.await.unwrap();
        early.query_one(&read, &[]).await.unwrap();
        // The holder before this transaction writes after the transaction's first look.
        let guard = locks.mutex("k").acquire().await.unwrap();
        two.batch_execute(&format!("UPDATE {counter} SET n = n + 1"))
            .await
            .unwrap();
        guard.release().await.unwrap();
        let refused = take(&locks, &early, "k").await.unwrap_err();
        assert!(refused.to_string().contains("roll it back"), "{refused}");
        assert!(refused.is_retryable());
        early.rollback().await.unwrap();
        let again = one.build_transaction().isolation_level(level).start();
        let again = again.await.unwrap();
        take_within(&locks, &again, "k", LONG).await.unwrap();
        again.commit().await.unwrap();
    }
}
