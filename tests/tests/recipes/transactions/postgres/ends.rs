//! Tests of how transactions end, and of what becomes of their locks.

use std::time::Duration;

use lock_runtime::TransactionError;
use tests::Postgres;
use tests::events::Events;
use tests::faults::{at_each_poll, poll_times};

use super::super::{
    Driver, LONG, Open, assert_refused_at_once, free_within, is_given_back_after, scene, take,
    take_within, the_lease_is_over,
};
use super::Tx;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_transaction_gives_the_lock_back() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    let seen = take(&locks, &mut Postgres::begin(&mut one).await, "k").await;
    assert!(seen.is_ok(), "dropped: {seen:?}");
    free_within(&locks, "k", LONG).await;

    is_given_back_after(&table, async || {
        let mut rolled_back = Postgres::begin(&mut one).await;
        take(&locks, &mut rolled_back, "k").await.unwrap();
        rolled_back.rollback().await;
    })
    .await;

    let mut aborted = Postgres::begin(&mut one).await;
    take(&locks, &mut aborted, "k").await.unwrap();
    the_lease_is_over(&table).await;
    aborted.0.batch_execute("SELECT 1 / 0").await.unwrap_err();
    // The server tells of the error before it gives the row back, and nothing else does.
    free_within(&locks, "k", LONG).await;
    is_given_back_after(&table, async || {
        let refused = take(&locks, &mut aborted, "k").await;
        assert!(
            matches!(refused, Err(TransactionError::Driver(_))),
            "{refused:?}"
        );
    })
    .await;
    // A commit of an aborted transaction is a rollback.
    aborted.commit().await;

    let mut outer = Postgres::begin(&mut one).await;
    is_given_back_after(&table, async || {
        let mut inner = Tx(outer.0.savepoint("nested").await.unwrap());
        take(&locks, &mut inner, "k").await.unwrap();
        assert_refused_at_once(locks.mutex("k").try_acquire()).await;
        inner.rollback().await;
    })
    .await;
    let mut inner = Tx(outer.0.savepoint("nested").await.unwrap());
    take(&locks, &mut inner, "k").await.unwrap();
    inner.commit().await;
    the_lease_is_over(&table).await;
    assert_refused_at_once(locks.mutex("k").try_acquire()).await;
    outer.commit().await;
    free_within(&locks, "k", Duration::ZERO).await;

    let mut cut = Postgres::begin(&mut one).await;
    take(&locks, &mut cut, "k").await.unwrap();
    let pid: i32 = cut
        .0
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    table
        .server()
        .query(&format!("SELECT pg_terminate_backend({pid})"));
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

#[tokio::test]
async fn a_transaction_that_fails_by_itself_is_no_outage_of_the_store() {
    let (_table, locks, mut one, _) = scene::<Postgres>().await;
    let mut aborted = Postgres::begin(&mut one).await;
    aborted.0.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let refused = take(&locks, &mut aborted, "k").await;
    assert!(
        matches!(refused, Err(TransactionError::Driver(_))),
        "{refused:?}"
    );
    let told = events.of(tracing::Level::DEBUG);
    assert!(
        told.iter().any(|event| event.contains("lock driver")),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transactional_request_dropped_at_any_poll_leaves_nothing() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    at_each_poll(async |polls, leave| {
        let mut transaction = Postgres::begin(&mut one).await;
        let taken = poll_times(
            take_within(&locks, &mut transaction, "k", LONG),
            polls,
            leave,
        )
        .await;
        transaction.rollback().await;
        taken.is_some()
    })
    .await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}
