//! What locks cost a MariaDB database, counted by the database.

use std::time::Duration;

use lock_runtime::{LockManager, TryAcquire};
use tests::mysql::is_left_out;
use tests::{MariadbServer, eventually};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);

async fn manager(server: &MariadbServer) -> LockManager {
    let builder = LockManager::builder().ensure_schema(true);
    builder.connect(&server.url()).await.unwrap()
}

/// The sum of some of the server's counters.
fn counted(server: &MariadbServer, names: &[&str]) -> i64 {
    let names = names.join("', '");
    let sum = format!(
        "SELECT CAST(SUM(VARIABLE_VALUE) AS SIGNED) FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME IN ('{names}')"
    );
    server.query(&sum)[0].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_for_a_lock_that_is_busy_change_no_row_and_write_no_log() {
    if is_left_out() {
        return;
    }
    let server = MariadbServer::start();
    let (locks, other) = (manager(&server).await, manager(&server).await);
    let guard = locks.mutex("k").acquire().await.unwrap();
    other.inspect("k").await.unwrap();
    let rows = || counted(&server, &["Handler_update"]);
    let (before, written) = (rows(), counted(&server, &["Innodb_os_log_written"]));
    for _ in 0..300 {
        let busy = other.mutex("k").try_acquire().await.unwrap();
        assert!(matches!(busy, TryAcquire::Busy { .. }));
    }
    // The holder's renewal, at most, and what the managers say of themselves.
    assert!(rows() - before <= 4, "{} rows", rows() - before);
    let written = counted(&server, &["Innodb_os_log_written"]) - written;
    assert!(written < 20_000, "{written} bytes");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_is_two_statements_and_pairs_leave_the_table_as_small_as_it_was() {
    const PAIRS: i64 = 3_000;
    if is_left_out() {
        return;
    }
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
        let writes = [
            "Com_update",
            "Com_update_multi",
            "Com_insert",
            "Com_insert_select",
        ];
        counted(
            &server,
            &[&writes[..], &["Com_delete", "Com_begin"]].concat(),
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_holds_are_renewed_by_a_few_statements() {
    if is_left_out() {
        return;
    }
    let server = MariadbServer::start();
    let locks = manager(&server).await;
    let mut guards = Vec::new();
    for n in 0..1_000 {
        let request = locks.mutex(format!("k{n}")).lease(9_000 * MS);
        guards.push(request.acquire().await.unwrap());
    }
    let renewals = || counted(&server, &["Com_update_multi"]);
    eventually("holds are renewed", async || renewals() > 0).await;
    let (before, began) = (renewals(), Instant::now());
    while began.elapsed() < 9_000 * MS {
        assert!(guards.iter().all(|guard| guard.is_held()));
        tokio::time::sleep(100 * MS).await;
    }
    // Three rounds of a cadence of 3 s.
    let sent = renewals() - before;
    assert!(sent > 0 && sent <= 30, "{sent} statements");
    for guard in guards {
        guard.release().await.unwrap();
    }
}
