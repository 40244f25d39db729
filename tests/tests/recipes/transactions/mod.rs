//! Tests of locks inside a transaction of the caller's, and of what others see of them.

mod ends;
mod refusals;
mod tokens;
mod updates;

use std::time::{Duration, Instant};

use lock_runtime::{
    FencingToken, LockError, LockManager, SqlTransaction, TransactionError, TryAcquire,
};
use tests::{PostgresTable, eventually};
use tokio::task::JoinSet;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, Transaction};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The limit for a waiter that is told: one that is not told asks again after 0.8 s at the earliest.
const TOLD: Duration = Duration::from_millis(700);

/// A transaction of `tokio-postgres`.
struct Tx<'t, 'c>(&'t Transaction<'c>);

impl SqlTransaction for Tx<'_, '_> {
    type Error = Error;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        let typed = |param| (param as &(dyn ToSql + Sync), Type::TEXT);
        let params: Vec<_> = params.iter().map(typed).collect();
        self.0.query_typed(sql, &params).await?[0].try_get(0)
    }
}

type Taken = Result<Option<FencingToken>, TransactionError<Error>>;

async fn take(locks: &LockManager, transaction: &Transaction<'_>, name: &str) -> Taken {
    take_within(locks, transaction, name, Duration::ZERO).await
}

async fn take_within(
    locks: &LockManager,
    transaction: &Transaction<'_>,
    name: &str,
    wait: Duration,
) -> Taken {
    let lock = locks.mutex(name).wait(wait);
    lock.in_transaction(&mut Tx(transaction)).await
}

fn is_busy(taken: &Taken) -> bool {
    matches!(taken, Err(error @ TransactionError::Lock(LockError::Busy { .. })) if error.is_retryable())
}

async fn client(url: &str) -> Client {
    let url = url.split('?').next().unwrap();
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn manager(table: &PostgresTable) -> LockManager {
    let builder = LockManager::builder().ensure_schema(true);
    builder.connect(&table.url()).await.unwrap()
}

/// Returns a table, a manager, and two connections of the program's own.
async fn scene() -> (PostgresTable, LockManager, Client, Client) {
    let table = PostgresTable::new();
    let locks = manager(&table).await;
    let (one, two) = (client(&table.url()).await, client(&table.url()).await);
    (table, locks, one, two)
}

async fn free_within(locks: &LockManager, name: &str, bound: Duration) {
    let guard = locks.mutex(name).wait(bound).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Waits until the lease by which a transaction came to its lock `k` is over.
async fn the_lease_is_over(table: &PostgresTable) {
    let over = format!(
        "SELECT 1 FROM {} WHERE name = 'lock:k' AND expires_at < now()",
        table.name()
    );
    eventually("the lease is over", async || {
        !table.server().query(&over).is_empty()
    })
    .await;
}

async fn waits(locks: &LockManager, name: &str) {
    eventually("somebody waits for it", async || {
        locks.inspect(name).await.unwrap().local_waiters == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_and_a_lease_exclude_each_other() {
    let (table, locks, mut one, mut two) = scene().await;
    let other = manager(&table).await;
    // The second time, the row is there already.
    for _ in 0..2 {
        let guard = locks.mutex("k").acquire().await.unwrap();
        let mine = one.transaction().await.unwrap();
        let refused = take(&other, &mine, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        let first = guard.fencing_token().unwrap();
        guard.release().await.unwrap();

        let second = take(&other, &mine, "k").await.unwrap().unwrap();
        assert!(second > first);
        let theirs = two.transaction().await.unwrap();
        let refused = take(&locks, &theirs, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        assert!(locks.inspect("k").await.unwrap().held);
        // Others are refused while the lease by which the transaction came to its lock is not over, and after that.
        for _ in 0..2 {
            for request in [locks.mutex("k"), locks.fair("k"), locks.fenced("k")] {
                let since = Instant::now();
                let tried = request.try_acquire().await.unwrap();
                println!("busy after {:?}", since.elapsed());
                assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
                assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());
            }
            let refused = locks.mutex("k").wait(1_000 * MS).acquire().await;
            assert!(
                matches!(refused, Err(LockError::Busy { .. })),
                "{refused:?}"
            );
            let both = [locks.mutex("k"), locks.mutex("other")];
            let tried = locks.multi(both).try_acquire().await.unwrap();
            assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
            the_lease_is_over(&table).await;
        }
        mine.commit().await.unwrap();

        let TryAcquire::Acquired(guard) = locks.mutex("k").try_acquire().await.unwrap() else {
            panic!("the commit has given it back");
        };
        assert!(guard.fencing_token().unwrap() > second);
        guard.release().await.unwrap();
        let theirs = take(&locks, &theirs, "k").await;
        assert!(
            theirs.is_ok(),
            "a transaction that was refused goes on: {theirs:?}"
        );
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_wakes_those_who_wait_and_a_release_wakes_a_transaction() {
    let (table, locks, mut one, mut two) = scene().await;
    let other = manager(&table).await;
    for long in [false, true, false] {
        let mine = one.transaction().await.unwrap();
        take(&locks, &mine, "k").await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
        waits(&other, "k").await;
        if long {
            the_lease_is_over(&table).await;
        }
        // After this sleep, the waiter has asked, and asked again once it listened.
        tokio::time::sleep(200 * MS).await;
        let since = Instant::now();
        mine.commit().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());

        let theirs = two.transaction().await.unwrap();
        let (taken, since) = tokio::join!(take_within(&locks, &theirs, "k", LONG), async {
            let waited = format!("SELECT 1 FROM {} WHERE waited_until > now()", table.name());
            eventually("the transaction waits", async || {
                !table.server().query(&waited).is_empty()
            })
            .await;
            tokio::time::sleep(200 * MS).await;
            let since = Instant::now();
            guard.release().await.unwrap();
            since
        });
        taken.unwrap();
        assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());
        theirs.commit().await.unwrap();
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_transaction_has_a_lock_others_are_renewed_and_released() {
    let (table, locks, mut one, _) = scene().await;
    let kept = locks.mutex("kept").lease(1_500 * MS);
    let kept = kept.acquire().await.unwrap();
    let mine = one.transaction().await.unwrap();
    take(&locks, &mine, "k").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..16 {
        waiters.spawn(manager(&table).await.mutex("k").wait(LONG).acquire());
    }
    let until = Instant::now() + 3_000 * MS;
    while Instant::now() < until {
        assert!(kept.is_held());
        let since = Instant::now();
        free_within(&locks, "another", LONG).await;
        assert!(since.elapsed() < 1_000 * MS, "{:?}", since.elapsed());
        tokio::time::sleep(50 * MS).await;
    }
    kept.release().await.unwrap();
    mine.commit().await.unwrap();
    while let Some(guard) = waiters.join_next().await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    table.assert_clean().await;
}
