//! Tests of locks inside a transaction of the caller's on MariaDB, and of what others see of them.

#[path = "../mysql_adapter.rs"]
mod adapter;
mod ends;
mod refusals;
mod tokens;

use std::time::{Duration, Instant};

use lock_runtime::{FencingToken, LockError, LockManager, TransactionError, TryAcquire};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, Opts, Transaction, TxOpts};
use tests::mariadb::NOW;
use tests::{MariadbTable, eventually};
use tokio::task::JoinSet;

use self::adapter::Tx;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The limit for a request that meets a locked row: it waits for a twentieth of a second. A request that gets it wrong
/// waits for the call timeout.
const SOON: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);

type Taken = Result<Option<FencingToken>, TransactionError<Error>>;

async fn take(locks: &LockManager, transaction: &mut Transaction<'_>, name: &str) -> Taken {
    take_within(locks, transaction, name, Duration::ZERO).await
}

async fn take_within(
    locks: &LockManager,
    transaction: &mut Transaction<'_>,
    name: &str,
    wait: Duration,
) -> Taken {
    let lock = locks.mutex(name).wait(wait);
    lock.in_transaction(&mut Tx(transaction)).await
}

fn is_busy(taken: &Taken) -> bool {
    matches!(taken, Err(error @ TransactionError::Lock(LockError::Busy { .. })) if error.is_retryable())
}

async fn client(url: &str) -> Conn {
    let url = url.split('?').next().unwrap();
    let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
    // A session of the program's own has other settings than the library's sessions.
    let own = "SET time_zone = '-07:00', sql_mode = '', NAMES latin1";
    let (first, names) = own.rsplit_once(", ").unwrap();
    conn.query_drop(first).await.unwrap();
    conn.query_drop(format!("SET {names}")).await.unwrap();
    conn
}

async fn begin(conn: &mut Conn) -> Transaction<'_> {
    conn.start_transaction(TxOpts::default()).await.unwrap()
}

/// Begins a transaction that can take several locks: at `REPEATABLE READ`, the first one is the only one.
async fn begin_for_several(conn: &mut Conn) -> Transaction<'_> {
    let mut options = TxOpts::default();
    options.with_isolation_level(Some(IsolationLevel::ReadCommitted));
    conn.start_transaction(options).await.unwrap()
}

async fn manager(table: &MariadbTable) -> LockManager {
    let builder = LockManager::builder()
        .call_timeout(CALL)
        .ensure_schema(true);
    builder.connect(&table.url()).await.unwrap()
}

/// Returns a table, a manager, and two connections of the program's own.
async fn scene() -> (MariadbTable, LockManager, Conn, Conn) {
    let table = MariadbTable::new();
    let locks = manager(&table).await;
    let (one, two) = (client(&table.url()).await, client(&table.url()).await);
    (table, locks, one, two)
}

async fn free_within(locks: &LockManager, name: &str, bound: Duration) {
    let guard = locks.mutex(name).wait(bound).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Waits until the lease by which a transaction came to its lock `k` is over.
async fn the_lease_is_over(table: &MariadbTable) {
    let over = format!(
        "SELECT 1 FROM {} WHERE name = 'lock:k' AND expires_at < {NOW}",
        table.name()
    );
    eventually("the lease is over", async || {
        !table.server().query(&over).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_and_a_lease_exclude_each_other() {
    let (table, locks, mut one, mut two) = scene().await;
    let other = manager(&table).await;
    free_within(&locks, "other", LONG).await;
    // The second time, the row is there already.
    for _ in 0..2 {
        let guard = locks.mutex("k").acquire().await.unwrap();
        let mut mine = begin(&mut one).await;
        let refused = take(&other, &mut mine, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        let first = guard.fencing_token().unwrap();
        guard.release().await.unwrap();

        let second = take(&other, &mut mine, "k").await.unwrap().unwrap();
        assert!(second > first);
        let mut theirs = begin(&mut two).await;
        let refused = take(&locks, &mut theirs, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        assert!(locks.inspect("k").await.unwrap().held);
        // Others are refused while the lease by which the transaction came to its lock is not over, and after that.
        for _ in 0..2 {
            for request in [locks.mutex("k"), locks.fair("k"), locks.fenced("k")] {
                let since = Instant::now();
                let tried = request.try_acquire().await.unwrap();
                println!("busy after {:?}", since.elapsed());
                assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
            }
            let refused = locks.mutex("k").wait(1_000 * MS).acquire().await;
            assert!(
                matches!(refused, Err(LockError::Busy { .. })),
                "{refused:?}"
            );
            let since = Instant::now();
            let both = [locks.mutex("k"), locks.mutex("other")];
            let tried = locks.multi(both).try_acquire().await.unwrap();
            assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
            assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
            the_lease_is_over(&table).await;
            assert!(locks.inspect("k").await.unwrap().held);
        }
        mine.commit().await.unwrap();

        let TryAcquire::Acquired(guard) = locks.mutex("k").try_acquire().await.unwrap() else {
            panic!("the commit has given it back");
        };
        assert!(guard.fencing_token().unwrap() > second);
        guard.release().await.unwrap();
        let taken = take(&locks, &mut theirs, "k").await;
        assert!(
            taken.is_ok(),
            "a transaction that was refused goes on: {taken:?}"
        );
        theirs.rollback().await.unwrap();
        free_within(&locks, "k", LONG).await;
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_transaction_frees_its_lock_at_the_commit_and_waiters_find_out() {
    let (table, locks, mut one, mut two) = scene().await;
    let other = manager(&table).await;
    for _ in 0..3 {
        let mut mine = begin(&mut one).await;
        take(&locks, &mut mine, "k").await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
        eventually("somebody waits for it", async || {
            other.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        mine.commit().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();

        let mut theirs = begin(&mut two).await;
        let (taken, ()) = tokio::join!(take_within(&locks, &mut theirs, "k", LONG), async {
            tokio::time::sleep(200 * MS).await;
            guard.release().await.unwrap();
        });
        taken.unwrap();
        theirs.commit().await.unwrap();
        // The lock is free at once, and not only when the lease by which the transaction came to it is over.
        free_within(&locks, "k", Duration::ZERO).await;
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_transactions_have_locks_others_are_taken_renewed_and_released() {
    let (table, locks, ..) = scene().await;
    let kept = locks.mutex("kept").lease(3_000 * MS);
    let kept = kept.acquire().await.unwrap();
    // There are more transactions than a manager has connections.
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(client(&table.url()).await);
    }
    let mut open = Vec::new();
    for (n, conn) in clients.iter_mut().enumerate() {
        let mut transaction = begin(conn).await;
        let taken = take(&locks, &mut transaction, &format!("k{n}")).await;
        taken.unwrap();
        open.push(transaction);
    }
    let mut waiters = JoinSet::new();
    for n in 0..12 {
        waiters.spawn(locks.mutex(format!("k{n}")).wait(LONG).acquire());
    }
    let (until, mut rounds) = (Instant::now() + 4_000 * MS, 0);
    while Instant::now() < until {
        assert!(kept.is_held());
        free_within(&locks, "another", LONG).await;
        rounds += 1;
        tokio::time::sleep(50 * MS).await;
    }
    // Requests that wait for the rows would keep their connections up to the call timeout.
    assert!(rounds >= 3, "{rounds} rounds");
    kept.release().await.unwrap();
    for transaction in open {
        transaction.commit().await.unwrap();
    }
    while let Some(guard) = waiters.join_next().await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    table.assert_clean().await;
}

/// The tasks read a number, give others time, and write one more: without exclusion, updates are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_between_leases_and_transactions_of_one_name() {
    const ROUNDS: i64 = 25;
    let (table, _, mut one, _) = scene().await;
    let counter = format!("{}_counter", table.name());
    let made = format!("CREATE TABLE {counter} (n BIGINT NOT NULL) ENGINE = InnoDB");
    one.query_drop(made).await.unwrap();
    one.query_drop(format!("INSERT INTO {counter} VALUES (0)"))
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let locks = manager(&table).await;
        let mut conn = client(&table.url()).await;
        let counter = counter.clone();
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let guard = match task % 2 {
                    0 => Some(locks.mutex("k").wait(LONG * 10).acquire().await.unwrap()),
                    _ => None,
                };
                // Now and then a transaction that writes ends in a rollback: the round is done again.
                for rolls_back in [guard.is_none() && round % 10 == 0, false] {
                    let mut transaction = begin(&mut conn).await;
                    if guard.is_none() {
                        let taken = take_within(&locks, &mut transaction, "k", LONG * 10).await;
                        taken.unwrap();
                    }
                    let read = format!("SELECT n FROM {counter}");
                    let n: Option<i64> = transaction.query_first(read).await.unwrap();
                    tokio::task::yield_now().await;
                    let write = format!("UPDATE {counter} SET n = {}", n.unwrap() + 1);
                    transaction.query_drop(write).await.unwrap();
                    if rolls_back {
                        transaction.rollback().await.unwrap();
                        continue;
                    }
                    transaction.commit().await.unwrap();
                    break;
                }
                if let Some(guard) = guard {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    let n = table.server().query(&format!("SELECT n FROM {counter}"));
    assert_eq!(n, [(6 * ROUNDS).to_string()]);
    table.assert_clean().await;
}

#[test]
fn the_page_shows_the_lines_that_are_tested() {
    let page = include_str!("../../../../docs/mysql.md");
    let lines = include_str!("../mysql_adapter.rs");
    let (_, lines) = lines.split_once("\n\n").unwrap();
    let lines = lines.replace("pub(super) ", "");
    assert!(
        page.contains(lines.trim()),
        "docs/mysql.md has not:\n{lines}"
    );
}
