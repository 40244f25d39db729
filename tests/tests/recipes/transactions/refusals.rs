//! Tests of transactions in which a lock would exclude nobody.

use std::cell::Cell;
use std::convert::Infallible;

use lock_runtime::{LockManager, SqlDialect, SqlTransaction};
use tests::Blocker;
use tests::faults::connected;

use super::{
    Driver, LONG, MS, Open, Taken, assert_refused, free_within, in_time, is_busy, scene, take,
    take_within, undriven,
};

tests::on_each_database!(
    what_could_not_exclude_others_is_refused_with_what_to_do
    a_lease_forced_on_its_way_is_left_to_another_transaction
    a_row_locked_by_a_stranger_for_a_while_is_taken_afterwards
    a_row_free_after_the_last_look_is_no_transactions_mistake
    a_manager_of_short_leases_gives_locks_to_transactions
);

async fn what_could_not_exclude_others_is_refused_with_what_to_do<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    let mut mine = D::begin(&mut one).await;
    for request in [locks.read("k"), locks.write("k"), locks.fair("k")] {
        let taken = request.in_transaction(&mut mine).await;
        assert_refused(taken, "takes mutexes and fenced locks");
    }
    let held = || locks.mutex("k");
    for (request, option) in [
        (held().min_hold(LONG), "`min_hold`"),
        (held().max_hold(LONG), "`max_hold`"),
        (held().keep_for(LONG), "`keep_for`"),
    ] {
        assert_refused(request.in_transaction(&mut mine).await, option);
    }
    let memory = LockManager::in_memory();
    assert_refused(take(&memory, &mut mine, "k").await, D::SCHEME);
    let reader = locks.read("shared").acquire().await.unwrap();
    assert_refused(take(&locks, &mut mine, "shared").await, "shared");
    reader.release().await.unwrap();
    take(&locks, &mut mine, "shared").await.unwrap();
    // A transaction has its lock once.
    assert!(is_busy(&take(&locks, &mut mine, "shared").await));
    mine.rollback().await;
    table.assert_clean().await;
}

/// A transaction before whose first statement something happens, which may answer in its place.
struct Disturbed<'a, T, F> {
    transaction: &'a mut T,
    first: Option<F>,
}

impl<T: SqlTransaction, F: Future<Output = Option<String>> + Send> SqlTransaction
    for Disturbed<'_, T, F>
{
    type Error = T::Error;
    const DIALECT: SqlDialect = T::DIALECT;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, T::Error> {
        if let Some(first) = self.first.take()
            && let Some(answer) = first.await
        {
            return Ok(answer);
        }
        self.transaction.ask(sql, params).await
    }
}

/// Takes `k` in a transaction whose lease is released by force on its way.
pub(super) async fn take_forced<T: SqlTransaction>(
    locks: &LockManager,
    transaction: &mut T,
) -> Taken<T::Error> {
    let mut disturbed = Disturbed {
        transaction,
        first: Some(Box::pin(async {
            assert!(locks.force_release("k").await.unwrap());
            None
        })),
    };
    take_within(locks, &mut disturbed, "k", LONG).await
}

/// Takes `k` in a new transaction, and rolls that back.
async fn take_anew<D: Driver>(locks: &LockManager, client: &mut D::Client) {
    let taken = in_time(async || {
        let mut mine = D::begin(client).await;
        let taken = undriven(take_within(locks, &mut mine, "k", LONG).await);
        mine.rollback().await;
        taken
    });
    taken.await.unwrap();
}

/// The transaction may have locked the row of a holder that it did not look for, and has to be done again.
async fn a_lease_forced_on_its_way_is_left_to_another_transaction<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    let mut mine = D::begin(&mut one).await;
    let refused = take_forced(&locks, &mut mine).await;
    assert!(!is_busy(&refused));
    let refused = refused.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    mine.rollback().await;
    take_anew::<D>(&locks, &mut one).await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

async fn a_row_locked_by_a_stranger_for_a_while_is_taken_afterwards<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    free_within(&locks, "k", LONG).await;
    let taken = in_time(async || {
        let mut mine = D::begin(&mut one).await;
        let mut disturbed = Disturbed {
            transaction: &mut mine,
            first: Some(Box::pin(async {
                let blocker = Blocker::of(&mut table.server().client(), table.name(), "lock:k");
                tokio::spawn(async move {
                    tokio::time::sleep(400 * MS).await;
                    blocker.commit();
                });
                None
            })),
        };
        let taken = take_within(&locks, &mut disturbed, "k", LONG).await;
        let taken = undriven(taken);
        mine.rollback().await;
        taken
    });
    taken.await.unwrap();
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

/// What is wrong with the transaction is asked for, and one more look says: nothing.
async fn a_row_free_after_the_last_look_is_no_transactions_mistake<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    let taken = in_time(async || {
        let mut mine = D::begin(&mut one).await;
        let mut disturbed = Disturbed {
            transaction: &mut mine,
            // As if others had locked the row when the transaction looks for the last time.
            first: Some(Box::pin(async {
                tokio::time::sleep(1_000 * MS).await;
                Some(String::new())
            })),
        };
        let taken = undriven(take_within(&locks, &mut disturbed, "k", LONG).await);
        mine.rollback().await;
        taken
    });
    taken.await.unwrap();
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

async fn a_manager_of_short_leases_gives_locks_to_transactions<D: Driver>() {
    let (table, _, mut one, _) = scene::<D>().await;
    let builder = tests::builder().ensure_schema(true);
    let builder = builder.lease(1_000 * MS).longest_lease(1_000 * MS);
    let locks = connected(builder, &table.url()).await;
    take_anew::<D>(&locks, &mut one).await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

/// A transaction that a task may have, though no two at a time.
#[derive(Default)]
struct Unshared(Cell<u32>);

impl SqlTransaction for Unshared {
    type Error = Infallible;

    async fn ask(&mut self, _sql: &str, _params: &[&str]) -> Result<String, Infallible> {
        self.0.set(self.0.get() + 1);
        Ok(String::new())
    }
}

#[tokio::test]
async fn a_task_takes_locks_in_a_transaction_that_is_send_not_sync() {
    let task = tokio::spawn(async {
        let mut unshared = Unshared::default();
        let locks = LockManager::in_memory();
        let taken = locks.mutex("k").in_transaction(&mut unshared).await;
        assert_eq!(unshared.0.get(), 0, "it is refused before any statement");
        taken
    });
    assert_refused(task.await.unwrap(), "memory");
}
