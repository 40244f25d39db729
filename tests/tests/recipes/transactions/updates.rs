//! Tests of updates that are lost without a lock, and are not lost with a transaction's own.

use tokio::task::JoinSet;

use super::{LONG, client, manager, scene, take_within};

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
