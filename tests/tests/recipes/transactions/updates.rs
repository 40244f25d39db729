//! Tests of updates that are lost without a lock, and are not lost with a transaction's own.

use tokio::task::JoinSet;

use super::{Driver, LONG, Open, manager, take_within};

tests::on_each_database!(no_update_is_lost_between_leases_and_transactions_of_a_name);

/// The tasks read a number, give others time, and write one more: without exclusion, updates are lost.
async fn no_update_is_lost_between_leases_and_transactions_of_a_name<D: Driver>() {
    let table = tests::Table::<D>::new();
    let counter = format!("{}_counter", table.name());
    let made = format!("CREATE TABLE {counter} (n BIGINT NOT NULL)");
    table.server().query(&made);
    table
        .server()
        .query(&format!("INSERT INTO {counter} VALUES (0)"));
    let (workers, rounds) = D::UPDATES;
    let mut tasks = JoinSet::new();
    for task in 0..workers {
        let locks = manager(&table).await;
        let mut client = D::open(&table.url()).await;
        let counter = counter.clone();
        tasks.spawn(async move {
            for round in 0..rounds {
                let guard = match task % 2 {
                    0 => Some(locks.mutex("k").wait(LONG * 10).acquire().await.unwrap()),
                    _ => None,
                };
                // Now and then a transaction that writes ends in a rollback: the round is done again.
                let mut rolls_back = guard.is_none() && round % 10 == 0;
                loop {
                    let mut transaction = D::begin(&mut client).await;
                    if guard.is_none() {
                        match take_within(&locks, &mut transaction, "k", LONG * 10).await {
                            Ok(_) => {}
                            // On a busy machine, it may be too slow for its lease.
                            Err(error) if error.is_retryable() => {
                                transaction.rollback().await;
                                continue;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let n = transaction
                        .number(&format!("SELECT n FROM {counter}"))
                        .await;
                    tokio::task::yield_now().await;
                    let write = format!("UPDATE {counter} SET n = {}", n + 1);
                    transaction.execute(&write).await;
                    if std::mem::take(&mut rolls_back) {
                        transaction.rollback().await;
                        continue;
                    }
                    transaction.commit().await;
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
    assert_eq!(n, [(workers * rounds).to_string()]);
    table.assert_clean().await;
}
