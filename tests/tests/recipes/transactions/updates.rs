//! What is lost without a lock, or with one that is released too early, and is not lost with a transaction's own.

use lock_runtime::LockManager;
use tests::{PostgresServer, eventually};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{LONG, client, manager, scene, take, take_within};

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
