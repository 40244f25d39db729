//! Tests of locks inside a transaction of the caller's, and of what others see of them.
//!
//! What PostgreSQL and MariaDB have in common is here and in the files beside this one, and runs on each of them. What
//! only one of them does is in `postgres/` and `mysql/`.

mod exclusion;
mod mysql;
mod postgres;
mod refusals;
mod tokens;
mod updates;

use std::convert::Infallible;
use std::time::Duration;

use lock_runtime::{
    FencingToken, LockError, LockGuard, LockManager, LockManagerBuilder, SqlTransaction,
    TransactionError, TryAcquire,
};
use tests::faults::connected;
use tests::{Sql, Table, eventually};

const MS: Duration = Duration::from_millis(1);
/// What only a hang takes.
const LONG: Duration = Duration::from_secs(45);
/// The call timeout of managers, for which a request that gets a locked row wrong would wait.
const CALL: Duration = Duration::from_secs(60);
/// The lease of managers: it outlives every wait, and a call may last for a sixth of it.
const HOUR: Duration = Duration::from_secs(60 * 60);
/// The lease of a hold that is to be renewed.
const KEPT: Duration = Duration::from_secs(18);

/// The parts that differ between the databases and their drivers.
trait Driver: Sql {
    /// The beginning of URLs of this database.
    const SCHEME: &'static str;
    /// The time after which a lock may be had of a transaction that was committed: none if others see it at once.
    const FREE_AFTER_COMMIT: Duration;
    /// The current time, in the unit of the column `expires_at`.
    const NOW: &'static str;
    /// The type of a column for the names of locks.
    const NAME_TYPE: &'static str;
    /// The number of tasks that change one counter, and how often each of them does.
    const UPDATES: (i64, i64);
    type Client: Send;
    type Transaction<'c>: Open;

    /// Connects as the program does. The URL is that of a table.
    fn open(url: &str) -> impl Future<Output = Self::Client> + Send;

    /// Begins a transaction as the database does by default.
    fn begin(client: &mut Self::Client) -> impl Future<Output = Self::Transaction<'_>> + Send;

    /// Begins a transaction that can take several locks.
    fn begin_for_several(
        client: &mut Self::Client,
    ) -> impl Future<Output = Self::Transaction<'_>> + Send;
}

/// A transaction that has begun.
trait Open: SqlTransaction + Sync {
    /// Returns the only number of an answer.
    fn number(&mut self, query: &str) -> impl Future<Output = i64> + Send;

    fn execute(&mut self, statement: &str) -> impl Future<Output = ()> + Send;

    fn commit(self) -> impl Future<Output = ()> + Send;

    fn rollback(self) -> impl Future<Output = ()> + Send;
}

type Taken<E> = Result<Option<FencingToken>, TransactionError<E>>;

async fn take<T: SqlTransaction>(
    locks: &LockManager,
    transaction: &mut T,
    name: &str,
) -> Taken<T::Error> {
    take_within(locks, transaction, name, Duration::ZERO).await
}

async fn take_within<T: SqlTransaction>(
    locks: &LockManager,
    transaction: &mut T,
    name: &str,
    wait: Duration,
) -> Taken<T::Error> {
    let lock = locks.mutex(name).wait(wait);
    lock.in_transaction(transaction).await
}

/// Repeats what is done in one transaction while it was too slow for the lease that it was to take over: on a busy machine,
/// a transaction may be.
async fn in_time(mut transaction: impl AsyncFnMut() -> Taken<Infallible>) -> Taken<Infallible> {
    let mut last = None;
    eventually("a transaction is in time for its lease", async || {
        let taken = transaction().await;
        let is_over = !matches!(&taken, Err(error) if error.is_retryable());
        last = Some(taken);
        is_over
    })
    .await;
    last.expect("it was asked at least once")
}

/// Returns the answer of a transaction whose driver does not fail.
fn undriven<E: std::fmt::Debug>(taken: Taken<E>) -> Taken<Infallible> {
    taken.map_err(|error| match error {
        TransactionError::Lock(error) => error.into(),
        error => panic!("{error:?}"),
    })
}

fn is_busy<E>(taken: &Taken<E>) -> bool {
    matches!(taken, Err(error @ TransactionError::Lock(LockError::Busy { .. })) if error.is_retryable())
}

fn assert_refused<E: std::fmt::Debug + std::fmt::Display>(taken: Taken<E>, says: &str) {
    let error = taken.unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
    assert!(!error.is_retryable(), "{error}");
}

async fn manager<D: Driver>(table: &Table<D>) -> LockManager {
    connect(table, tests::builder()).await
}

async fn connect<D: Driver>(table: &Table<D>, builder: LockManagerBuilder) -> LockManager {
    let builder = builder.call_timeout(CALL).lease(HOUR).ensure_schema(true);
    connected(builder, &table.url()).await
}

/// Returns a table, a manager, and two connections of the program's own.
async fn scene<D: Driver>() -> (Table<D>, LockManager, D::Client, D::Client) {
    let table = Table::new();
    let locks = manager(&table).await;
    let (one, two) = (D::open(&table.url()).await, D::open(&table.url()).await);
    (table, locks, one, two)
}

async fn free_within(locks: &LockManager, name: &str, bound: Duration) {
    let guard = locks.mutex(name).wait(bound).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Tries a lock that somebody has. A request that waited for a locked row would wait for the transaction that has it.
async fn assert_refused_at_once<G: std::fmt::Debug>(
    tried: impl Future<Output = Result<TryAcquire<G>, LockError>>,
) {
    let tried = tokio::time::timeout(LONG, tried).await;
    let tried = tried.expect("it does not wait for the row").unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
}

/// Waits until the row of the lock `k` is so.
async fn until_the_row<D: Driver>(table: &Table<D>, is_so: &str) {
    let seen = format!(
        "SELECT 1 FROM {} WHERE name = 'lock:k' AND ({is_so})",
        table.name()
    );
    eventually(is_so, async || !table.server().ask(&seen).await.is_empty()).await;
}

/// Waits until the lease by which a transaction came to its lock `k` is over.
async fn the_lease_is_over<D: Driver>(table: &Table<D>) {
    until_the_row(table, &format!("expires_at < {}", D::NOW)).await;
}

/// Asserts that the lock `k` is given back after `end`, and not left to its lease, whose end leaves the holder in the row.
/// Where the machine is so busy that the lease is over first, `end` is done again.
async fn is_given_back_after<D: Driver>(table: &Table<D>, mut end: impl AsyncFnMut()) {
    let free = format!("holder IS NULL OR expires_at < {}", D::NOW);
    for _ in 0..10 {
        end().await;
        until_the_row(table, &free).await;
        let left = format!(
            "SELECT 1 FROM {} WHERE name = 'lock:k' AND holder IS NOT NULL",
            table.name()
        );
        if table.server().ask(&left).await.is_empty() {
            return;
        }
    }
    panic!("the lock is left to its lease");
}

/// Takes another lock in turns, until the hold of `kept` was renewed twice. A request that waited for the row of a
/// transaction would keep its connection for as long as a call may take.
async fn others_go_on<D: Driver>(table: &Table<D>, locks: &LockManager, kept: &LockGuard) {
    let ends = format!(
        "SELECT expires_at FROM {} WHERE name = 'lock:kept'",
        table.name()
    );
    let mut seen = Vec::new();
    while seen.len() <= 2 {
        assert!(kept.is_held());
        free_within(locks, "another", LONG).await;
        let ends = table.server().ask(&ends).await;
        if seen.last() != Some(&ends) {
            seen.push(ends);
        }
        tokio::time::sleep(50 * MS).await;
    }
}

async fn waits(locks: &LockManager, name: &str) {
    eventually("somebody waits for it", async || {
        locks.inspect(name).await.unwrap().local_waiters == 1
    })
    .await;
}
