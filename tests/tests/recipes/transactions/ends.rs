//! Tests of how transactions end, and of what becomes of their locks.

use std::time::{Duration, Instant};

use lock_runtime::{TransactionError, TryAcquire};
use tests::faults::{at_each_poll, poll_times};

use super::{LONG, MS, TOLD, free_within, is_busy, scene, take, take_within, the_lease_is_over};

/// A time at which the lease by which a transaction comes to its lock is not over yet. It is over after 2 s.
const BEFORE_THE_LEASE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_transaction_gives_the_lock_back() {
    let (table, locks, mut one, _) = scene().await;
    let seen = take(&locks, &one.transaction().await.unwrap(), "k").await;
    assert!(seen.is_ok(), "dropped: {seen:?}");
    free_within(&locks, "k", LONG).await;

    let rolled_back = one.transaction().await.unwrap();
    take(&locks, &rolled_back, "k").await.unwrap();
    let since = Instant::now();
    rolled_back.rollback().await.unwrap();
    free_within(&locks, "k", LONG).await;
    assert!(since.elapsed() < BEFORE_THE_LEASE, "{:?}", since.elapsed());

    let aborted = one.transaction().await.unwrap();
    take(&locks, &aborted, "k").await.unwrap();
    the_lease_is_over(&table).await;
    aborted.batch_execute("SELECT 1 / 0").await.unwrap_err();
    free_within(&locks, "k", Duration::ZERO).await;
    let refused = take(&locks, &aborted, "k").await;
    assert!(
        matches!(refused, Err(TransactionError::Driver(_))),
        "{refused:?}"
    );
    free_within(&locks, "k", TOLD).await;
    // A commit of an aborted transaction is a rollback.
    aborted.commit().await.unwrap();

    let mut outer = one.transaction().await.unwrap();
    let inner = outer.savepoint("nested").await.unwrap();
    take(&locks, &inner, "k").await.unwrap();
    let tried = locks.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
    inner.rollback().await.unwrap();
    free_within(&locks, "k", BEFORE_THE_LEASE).await;
    let inner = outer.savepoint("nested").await.unwrap();
    take(&locks, &inner, "k").await.unwrap();
    inner.commit().await.unwrap();
    the_lease_is_over(&table).await;
    let since = Instant::now();
    let tried = locks.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
    assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());
    outer.commit().await.unwrap();
    free_within(&locks, "k", Duration::ZERO).await;

    let cut = one.transaction().await.unwrap();
    take(&locks, &cut, "k").await.unwrap();
    let pid: i32 = cut
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_transactions_that_wait_for_each_other_are_told_to_try_again() {
    let (table, locks, mut one, mut two) = scene().await;
    let (mine, theirs) = (
        one.transaction().await.unwrap(),
        two.transaction().await.unwrap(),
    );
    take(&locks, &mine, "a").await.unwrap();
    take(&locks, &theirs, "b").await.unwrap();
    let (first, second) = tokio::join!(
        async {
            let taken = take_within(&locks, &mine, "b", 500 * MS).await;
            mine.rollback().await.unwrap();
            taken
        },
        take_within(&locks, &theirs, "a", LONG),
    );
    assert!(is_busy(&first), "{first:?}");
    assert!(second.is_ok(), "{second:?}");
    theirs.commit().await.unwrap();
    let mine = one.transaction().await.unwrap();
    for name in ["a", "b"] {
        take(&locks, &mine, name).await.unwrap();
    }
    mine.commit().await.unwrap();
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_transaction_that_is_dropped_at_any_poll_leaves_nothing_behind() {
    let (table, locks, mut one, _) = scene().await;
    at_each_poll(async |polls, leave| {
        let transaction = one.transaction().await.unwrap();
        let taken = poll_times(take_within(&locks, &transaction, "k", LONG), polls, leave).await;
        transaction.rollback().await.unwrap();
        taken.is_some()
    })
    .await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}
