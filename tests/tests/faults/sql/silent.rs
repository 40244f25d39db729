//! Tests of idle connections that a failover has left open, and on which nothing arrives any more.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, TryAcquire};
use tests::faults::free_within;
use tests::{Pipe, Sql, Table, eventually};
use tokio::task::JoinSet;

use super::{LONG, MS, end, manager, manager_with};

tests::on_each_database!(
    one_silent_connection_makes_the_manager_leave_all_others
    a_release_that_meets_a_silent_connection_meets_no_other
);

/// The timeout of a call: a new connection is opened in much less, and a silent one costs as much.
const CALL: Duration = Duration::from_secs(6);
/// The number of connections that are idle.
const IDLE: usize = 12;

/// Starts a manager with many idle connections through a proxy, and another manager beside it.
async fn idle<D: Sql>() -> (Table<D>, Pipe, LockManager, LockManager) {
    let table = Table::<D>::new();
    let server = table.server().addr().to_string();
    let pipe = Pipe::start(table.server().addr()).await;
    let other = manager(&table.url()).await;
    let through = table.url().replace(&server, &pipe.addr().to_string());
    let locks = manager_with(CALL, &format!("{through}&lock_pool=32")).await;
    eventually("many connections are open", async || {
        let mut all = JoinSet::new();
        for n in 0..24 {
            let (locks, key) = (locks.clone(), format!("k{n}"));
            all.spawn(async move { free_within(&locks, &key, LONG).await });
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
        pipe.connections() > IDLE + 4
    })
    .await;
    // After this time, MySQL's idle connections are asked for a sign of life before they are used.
    tokio::time::sleep(1_100 * MS).await;
    (table, pipe, locks, other)
}

async fn one_silent_connection_makes_the_manager_leave_all_others<D: Sql>() {
    let (table, pipe, locks, other) = idle::<D>().await;
    pipe.freeze_open_connections();
    let mut failed = 0;
    let guard = loop {
        match locks.mutex("k").try_acquire().await {
            Ok(TryAcquire::Acquired(guard)) => break guard,
            Ok(busy) => panic!("{busy:?}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        failed += 1;
        assert!(failed < IDLE / 2, "each silent connection costs a call");
    };
    guard.release().await.unwrap();
    pipe.cut();
    end(table, locks, other).await;
}

async fn a_release_that_meets_a_silent_connection_meets_no_other<D: Sql>() {
    let (table, pipe, locks, other) = idle::<D>().await;
    let guard = locks.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    pipe.freeze_open_connections();
    // The first try meets a silent connection. The second one is made in the background.
    let released = guard.release().await;
    assert!(
        released.as_ref().is_ok() || released.as_ref().is_err_and(LockError::is_retryable),
        "{released:?}"
    );
    // This is less than the silent connections would take one by one.
    free_within(&other, "k", LONG).await;
    pipe.cut();
    end(table, locks, other).await;
}
