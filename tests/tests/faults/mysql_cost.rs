//! Tests of what locks cost a MariaDB or MySQL database, counted by the database.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, TryAcquire};
use tests::faults::connected;
use tests::{MariadbServer, eventually};

const HOUR: Duration = Duration::from_secs(60 * 60);
/// Only a hang takes so long.
const CALL: Duration = Duration::from_secs(60);

async fn manager(server: &MariadbServer) -> LockManager {
    // Nothing is renewed within a test.
    let builder = tests::builder().call_timeout(CALL).lease(HOUR);
    let builder = builder.ensure_schema(true);
    connected(builder, &server.url()).await
}

/// The server's counters of statements that write rows.
pub(crate) const WRITES: [&str; 4] = [
    "Com_update",
    "Com_update_multi",
    "Com_insert",
    "Com_insert_select",
];

/// Returns the sum of some of the server's counters.
pub(crate) fn counted(server: &MariadbServer, names: &[&str]) -> i64 {
    let names = names.join("', '");
    let counters = server.query(&format!(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('{names}')"
    ));
    let values = counters.iter().map(|line| {
        let (_, value) = line.split_once('|').unwrap();
        value.parse::<i64>().unwrap()
    });
    values.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_for_a_lock_that_is_busy_change_no_row_and_write_no_log() {
    let server = MariadbServer::start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    let guard = locks.mutex("k").acquire().await.unwrap();
    other.inspect("k").await.unwrap();
    let rows = || counted(&server, &["Handler_update"]);
    let logged = || counted(&server, &["Innodb_os_log_written"]);
    // Rows of the set-up that are still to be purged go through the log as well.
    let unpurged = "SELECT count FROM information_schema.INNODB_METRICS \
                    WHERE name = 'trx_rseg_history_len' AND count > 0";
    eventually("a new server has purged what is old", async || {
        server.query(unpurged).is_empty()
    })
    .await;
    let (before, written, began) = (rows(), logged(), Instant::now());
    for _ in 0..300 {
        let busy = other.mutex("k").try_acquire().await.unwrap();
        assert!(matches!(busy, TryAcquire::Busy { .. }));
    }
    // At most, these are the records of the managers, which are written again every 30 s.
    let most = 4 + 2 * i64::try_from(began.elapsed().as_secs() / 30).unwrap();
    assert!(rows() - before <= most, "{} rows", rows() - before);
    let written = logged() - written;
    assert!(written < 20_000, "{written} bytes");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_costs_two_statements_and_never_grows_the_table() {
    const PAIRS: i64 = 3_000;
    let server = MariadbServer::start();
    let locks = manager(&server).await;
    let pairs = async |count: i64| {
        for n in 0..count {
            let guard = locks.mutex(format!("k{}", n % 20)).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
    };
    pairs(60).await;
    let statements = || {
        counted(
            &server,
            &[&WRITES[..], &["Com_delete", "Com_begin"]].concat(),
        )
    };
    let before = statements();
    pairs(PAIRS).await;
    let statements = statements() - before;
    assert!(statements >= PAIRS * 2, "{statements}");
    assert!(statements <= PAIRS * 2 + PAIRS / 20, "{statements}");
    let size = "SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES \
                WHERE TABLE_NAME = 'lock_leases'";
    server.query("ANALYZE TABLE lock_leases");
    let size: i64 = server.query(size)[0].parse().unwrap();
    assert!(size <= 64 * 1024, "{size} bytes");
}
