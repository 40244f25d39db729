//! Tests of how transactions end, and of what becomes of their locks.

use std::time::Duration;

use lock_runtime::{SqlDialect, SqlTransaction};
use mysql_async::Error;
use mysql_async::prelude::Queryable;
use tests::Mariadb;
use tests::faults::{at_each_poll, poll_times};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{
    Driver, LONG, MS, Open, assert_refused_at_once, free_within, in_time, is_given_back_after,
    scene, take, take_within, the_lease_is_over, undriven,
};
use super::Owned;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_transaction_gives_the_lock_back() {
    let (table, locks, mut one, _) = scene::<Mariadb>().await;
    is_given_back_after(&table, async || {
        let mut rolled_back = Mariadb::begin(&mut one).await;
        take(&locks, &mut rolled_back, "k").await.unwrap();
        rolled_back.rollback().await;
    })
    .await;

    let mut long = Mariadb::begin(&mut one).await;
    take(&locks, &mut long, "k").await.unwrap();
    the_lease_is_over(&table).await;
    long.rollback().await;
    free_within(&locks, "k", Duration::ZERO).await;

    // Before the savepoint, the transaction has touched no row: all of it is rolled back, and the row is unlocked.
    let mut outer = Mariadb::begin_for_several(&mut one).await;
    outer.0.query_drop("SAVEPOINT nested").await.unwrap();
    take(&locks, &mut outer, "k").await.unwrap();
    assert_refused_at_once(locks.mutex("k").try_acquire()).await;
    outer.0.query_drop("ROLLBACK TO nested").await.unwrap();
    free_within(&locks, "k", LONG).await;
    outer.0.query_drop("SAVEPOINT nested").await.unwrap();
    take(&locks, &mut outer, "k").await.unwrap();
    outer
        .0
        .query_drop("RELEASE SAVEPOINT nested")
        .await
        .unwrap();
    the_lease_is_over(&table).await;
    assert_refused_at_once(locks.mutex("k").try_acquire()).await;
    outer.commit().await;
    free_within(&locks, "k", Duration::ZERO).await;

    // Of a transaction that has touched a row before, the rollback to a savepoint unlocks nothing.
    free_within(&locks, "l", LONG).await;
    let mut outer = Mariadb::begin_for_several(&mut one).await;
    take(&locks, &mut outer, "l").await.unwrap();
    outer.0.query_drop("SAVEPOINT nested").await.unwrap();
    take(&locks, &mut outer, "k").await.unwrap();
    outer.0.query_drop("ROLLBACK TO nested").await.unwrap();
    the_lease_is_over(&table).await;
    assert_refused_at_once(locks.mutex("k").try_acquire()).await;
    outer.commit().await;
    free_within(&locks, "k", LONG).await;

    let mut cut = Mariadb::begin(&mut one).await;
    take(&locks, &mut cut, "k").await.unwrap();
    let id: Option<u64> = cut.0.query_first("SELECT CONNECTION_ID()").await.unwrap();
    table.server().query(&format!("KILL {}", id.unwrap()));
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}

/// A transaction whose first statement finds the row locked by others, when a lease of two seconds is half over.
struct KeptWaiting<'c> {
    transaction: Owned<'c>,
    asked: Option<Instant>,
}

impl SqlTransaction for KeptWaiting<'_> {
    type Error = Error;
    const DIALECT: SqlDialect = SqlDialect::Mysql;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        if self.asked.is_some() {
            return self.transaction.ask(sql, params).await;
        }
        self.asked = Some(Instant::now());
        sleep(1_100 * MS).await;
        Ok(String::new())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lengthened_by_a_look_is_given_back_after_a_rollback() {
    let (table, locks, mut one, _) = scene::<Mariadb>().await;
    is_given_back_after(&table, async || {
        let taken = in_time(async || {
            let mut kept_waiting = KeptWaiting {
                transaction: Mariadb::begin(&mut one).await,
                asked: None,
            };
            let taken = take(&locks, &mut kept_waiting, "k").await;
            // The two seconds are over, but not the lease: the transaction's library has looked whether it is there.
            sleep_until(kept_waiting.asked.unwrap() + 2_600 * MS).await;
            kept_waiting.transaction.rollback().await;
            undriven(taken)
        });
        taken.await.unwrap();
    })
    .await;
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transactional_request_dropped_at_any_poll_leaves_nothing() {
    let (table, locks, ..) = scene::<Mariadb>().await;
    at_each_poll(async |polls, leave| {
        let mut conn = Mariadb::open(&table.url()).await;
        let mut transaction = Mariadb::begin(&mut conn).await;
        let taken = poll_times(
            take_within(&locks, &mut transaction, "k", LONG),
            polls,
            leave,
        );
        let taken = taken.await;
        // The driver's connection is of no use after a statement that was dropped.
        match &taken {
            Some(_) => transaction.rollback().await,
            None => drop(transaction),
        }
        taken.is_some()
    })
    .await;
    free_within(&locks, "k", LONG).await;
    table.assert_clean().await;
}
