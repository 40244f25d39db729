//! Tests of what locks cost a PostgreSQL database, counted by the database.

use std::time::Duration;

use lock_runtime::{LockManager, TryAcquire};
use tests::faults::connected;
use tests::{PostgresServer, eventually};

const LONG: Duration = Duration::from_secs(30);

async fn manager(server: &PostgresServer) -> LockManager {
    let builder = tests::builder().ensure_schema(true);
    connected(builder.call_timeout(LONG), &server.url()).await
}

fn number(server: &PostgresServer, what: &str) -> i64 {
    let answer = server.query(&format!("SELECT ({what})::bigint"));
    answer[0].parse().unwrap()
}

fn wal(server: &PostgresServer) -> i64 {
    number(server, "pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_for_a_lock_that_is_busy_write_nothing() {
    let server = PostgresServer::start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    // Its renewals would be written.
    let lease = Duration::from_secs(24 * 60 * 60);
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    let before = wal(&server);
    for _ in 0..500 {
        let busy = other.mutex("k").try_acquire().await.unwrap();
        assert!(matches!(busy, TryAcquire::Busy { .. }));
    }
    let written = wal(&server) - before;
    // The server itself writes now and then which transactions run, and the managers say every 30 s who they are. A try that
    // wrote would write at least fifty bytes.
    assert!(written < 10_000, "{written} bytes");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_leave_the_table_as_small_as_it_was_without_a_vacuum() {
    const PAIRS: usize = 2_000;
    let server = PostgresServer::start();
    let locks = manager(&server).await;
    let pairs = async |count: usize| {
        for n in 0..count {
            let guard = locks.mutex(format!("k{}", n % 20)).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    };
    pairs(100).await;
    let (before, size) = (wal(&server), "pg_relation_size('lock_leases')");
    pairs(PAIRS).await;
    let written = (wal(&server) - before) / PAIRS as i64;
    assert!(written < 450, "{written} bytes of WAL a pair");
    let size = number(&server, size);
    assert!(size <= 128 * 1024, "{size} bytes of table");
    let index = number(&server, "pg_relation_size('lock_leases_pkey')");
    assert!(index <= 32 * 1024, "{index} bytes of index");
    drop(locks);
    // Sessions report what they did when they end.
    eventually("nearly all updates were HOT", async || {
        let (all, hot) = ("n_tup_upd", "n_tup_hot_upd");
        let of =
            |what| format!("SELECT {what} FROM pg_stat_user_tables WHERE relname = 'lock_leases'");
        let (all, hot) = (number(&server, &of(all)), number(&server, &of(hot)));
        all >= 2 * PAIRS as i64 && hot * 100 >= all * 99
    })
    .await;
}
