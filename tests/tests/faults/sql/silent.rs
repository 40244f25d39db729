//! Tests of idle connections that a failover has left open, and on which nothing arrives any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, TryAcquire};
use tests::faults::free_within;
use tests::{Pipe, Sql, Table, eventually};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{LONG, MS, end, manager, manager_with};

/// A server that takes connections and says nothing.
async fn openings_that_are_given_up_end(scheme: &str) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let counted = open.clone();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = server.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            let counted = counted.clone();
            tokio::spawn(async move {
                // Reads what it is told, until the other side closes.
                let _ = tokio::io::copy(&mut connection, &mut tokio::io::sink()).await;
                counted.fetch_sub(1, SeqCst);
            });
        }
    });
    let builder = tests::builder().lazy(true).call_timeout(2 * LONG);
    let url = format!("{scheme}://user@{address}/db");
    let locks = builder.connect(&url).await.unwrap();
    for _ in 0..20 {
        let refused = locks.mutex("k").wait(50 * MS).acquire().await;
        assert!(refused.is_err());
    }
    // One may go on for the next caller. Others are for notifications and renewals.
    eventually("the others have ended", async || open.load(SeqCst) <= 4).await;
}

#[tokio::test]
async fn openings_to_a_silent_postgres_end() {
    openings_that_are_given_up_end("postgres").await;
}

#[tokio::test]
async fn openings_to_a_silent_mysql_end() {
    openings_that_are_given_up_end("mysql").await;
}

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
    let pipe = Pipe::start(table.server().addr()).await;
    let other = manager(&table.url()).await;
    let through = table.url_through(pipe.addr());
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
            // A try that was not answered is undone first.
            Ok(TryAcquire::Busy { .. }) if failed > 0 => {
                tokio::time::sleep(10 * MS).await;
                continue;
            }
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
