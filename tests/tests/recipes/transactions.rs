//! Locks inside a transaction of the caller's, and what others see of them.

use std::time::{Duration, Instant};

use lock_runtime::{
    FencingToken, LockError, LockManager, SqlTransaction, TransactionError, TryAcquire, raise_fence,
};
use tests::faults::{at_each_poll, poll_times};
use tests::{PostgresServer, PostgresTable, eventually};
use tokio::task::JoinSet;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, NoTls, Transaction};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// A waiter that is not told asks again after 0.8 s at the earliest.
const TOLD: Duration = Duration::from_millis(700);
/// The lease by which a transaction comes to its lock is over after 2 s.
const BEFORE_THE_LEASE: Duration = Duration::from_millis(1_500);

/// The lines for `tokio-postgres`.
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

/// A table, a manager, and two connections of the program's own.
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
        // While the lease by which it came is not over, and after that.
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
        // It has asked, and asked again once it listened.
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
    // A commit of it is a rollback.
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

    // The same names in another database.
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
        // The holder before it writes after its first look.
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

#[tokio::test]
async fn fenced_locks_count_on_in_a_transaction() {
    let (table, locks, mut one, _) = scene().await;
    for count in [1_u64, 3, 5] {
        let mine = one.transaction().await.unwrap();
        let taken = locks.fenced("k").in_transaction(&mut Tx(&mine)).await;
        assert_eq!(taken.unwrap().unwrap().get(), count);
        mine.commit().await.unwrap();
        let guard = locks.fenced("k").acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), count + 1);
        guard.release().await.unwrap();
    }
    table.assert_clean().await;
}

#[tokio::test]
async fn a_transaction_of_a_late_holder_is_refused_by_the_fence() {
    let (table, locks, mut one, mut two) = scene().await;
    let fences = format!("{}_fences", table.name());
    let made = format!("CREATE TABLE {fences} (lock_name text PRIMARY KEY, token bigint NOT NULL)");
    one.batch_execute(&made).await.unwrap();
    let late = locks.mutex("k").acquire().await.unwrap();
    let late_token = late.fencing_token().unwrap();
    let mine = one.transaction().await.unwrap();
    raise_fence(&mut Tx(&mine), &fences, "k", late_token)
        .await
        .unwrap();
    mine.commit().await.unwrap();
    late.release().await.unwrap();

    let theirs = two.transaction().await.unwrap();
    let token = take(&locks, &theirs, "k").await.unwrap().unwrap();
    let asked = Instant::now();
    let mine = one.transaction().await.unwrap();
    let (mut early, mut next) = (Tx(&mine), Tx(&theirs));
    raise_fence(&mut next, &fences, "k", token).await.unwrap();
    raise_fence(&mut next, &fences, "k", token).await.unwrap();
    let (refused, ()) = tokio::join!(raise_fence(&mut early, &fences, "k", late_token), async {
        tokio::time::sleep(100 * MS).await;
        theirs.commit().await.unwrap();
    });
    assert!(asked.elapsed() >= 100 * MS, "it waits for the commit");
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, TransactionError::Fenced { token, .. } if *token == late_token),
        "{refused}"
    );
    raise_fence(&mut early, &fences, "another", late_token)
        .await
        .unwrap();
    let odd = raise_fence(&mut early, "fences; --", "k", late_token).await;
    assert!(odd.unwrap_err().to_string().contains("schema.name"));
}

/// The tasks read a number, give others time, and write one more: without exclusion, updates are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_between_leases_and_transactions_of_one_name() {
    const ROUNDS: i64 = 100;
    let (table, _, one, _) = scene().await;
    let counter = format!("{}_counter", table.name());
    let made =
        format!("CREATE TABLE {counter} (n bigint NOT NULL); INSERT INTO {counter} VALUES (0)");
    one.batch_execute(&made).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let locks = manager(&table).await;
        let mut client = client(&table.url()).await;
        let read = format!("SELECT n FROM {counter}");
        let write = format!("UPDATE {counter} SET n = $1");
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let guard = match task % 2 {
                    0 => Some(locks.mutex("k").wait(LONG * 10).acquire().await.unwrap()),
                    _ => None,
                };
                let transaction = client.transaction().await.unwrap();
                if guard.is_none() {
                    let taken = take_within(&locks, &transaction, "k", LONG * 10).await;
                    taken.unwrap();
                }
                let n: i64 = transaction.query_one(&read, &[]).await.unwrap().get(0);
                tokio::task::yield_now().await;
                transaction.execute(&write, &[&(n + 1)]).await.unwrap();
                // Now and then a transaction that writes ends in a rollback: the round is done again.
                if guard.is_none() && round % 10 == 0 {
                    transaction.rollback().await.unwrap();
                    let transaction = client.transaction().await.unwrap();
                    let taken = take_within(&locks, &transaction, "k", LONG * 10).await;
                    taken.unwrap();
                    let n: i64 = transaction.query_one(&read, &[]).await.unwrap().get(0);
                    transaction.execute(&write, &[&(n + 1)]).await.unwrap();
                    transaction.commit().await.unwrap();
                } else {
                    transaction.commit().await.unwrap();
                }
                if let Some(guard) = guard {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    let n: i64 = one
        .query_one(&format!("SELECT n FROM {counter}"), &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(n, 8 * ROUNDS);
    table.assert_clean().await;
}

/// What bob does while ada's transaction is open: he spends 50 of what he sees. It says what he saw.
async fn bob_spends(locks: LockManager, mut client: Client, own_lock: bool) -> i64 {
    let guard = match own_lock {
        true => Some(locks.mutex("account").wait(LONG).acquire().await.unwrap()),
        false => None,
    };
    let transaction = client.transaction().await.unwrap();
    if guard.is_none() {
        let taken = take_within(&locks, &transaction, "account", LONG).await;
        taken.unwrap();
    }
    let balance = "SELECT balance FROM account";
    let seen: i64 = transaction.query_one(balance, &[]).await.unwrap().get(0);
    println!("bob has the lock, and sees {seen}");
    let update = "UPDATE account SET balance = $1";
    transaction.execute(update, &[&(seen - 50)]).await.unwrap();
    transaction.commit().await.unwrap();
    if let Some(guard) = guard {
        guard.release().await.unwrap();
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_released_before_the_commit_loses_an_update_and_one_of_the_transaction_does_not()
 {
    let server = PostgresServer::start();
    let builder = LockManager::builder().ensure_schema(true);
    let locks = builder.connect(&server.url()).await.unwrap();
    let mut ada = client(&server.url()).await;
    let table = "CREATE TABLE account AS SELECT 100::bigint AS balance";
    ada.batch_execute(table).await.unwrap();
    let balance = "SELECT balance FROM account";
    let spend = "UPDATE account SET balance = balance - 30";

    println!("1. The lock is released before the commit. There are 100; ada spends 30, bob 50.");
    let guard = locks.mutex("account").acquire().await.unwrap();
    let open = ada.transaction().await.unwrap();
    open.execute(spend, &[]).await.unwrap();
    guard.release().await.unwrap();
    println!("ada has written 70, has released the lock, and has not committed");
    let bob = bob_spends(locks.clone(), client(&server.url()).await, true);
    let bob = tokio::spawn(bob);
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("bob writes", async || !server.query(waiting).is_empty()).await;
    open.commit().await.unwrap();
    assert_eq!(bob.await.unwrap(), 100, "bob sees what was there before");
    let left: i64 = ada.query_one(balance, &[]).await.unwrap().get(0);
    println!("{left} are left: what ada has spent is back");
    assert_eq!(left, 50);

    println!("2. The transactions have the lock.");
    let reset = "UPDATE account SET balance = 100";
    ada.batch_execute(reset).await.unwrap();
    let open = ada.transaction().await.unwrap();
    take(&locks, &open, "account").await.unwrap();
    open.execute(spend, &[]).await.unwrap();
    println!("ada has written 70, and has not committed");
    let bob = bob_spends(locks.clone(), client(&server.url()).await, false);
    let bob = tokio::spawn(bob);
    let asked = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND (query LIKE 'BEGIN%' OR query LIKE 'START%')";
    eventually("bob waits", async || !server.query(asked).is_empty()).await;
    open.commit().await.unwrap();
    assert_eq!(bob.await.unwrap(), 70, "bob sees what ada has committed");
    let left: i64 = ada.query_one(balance, &[]).await.unwrap().get(0);
    println!("{left} are left");
    assert_eq!(left, 20);
}
