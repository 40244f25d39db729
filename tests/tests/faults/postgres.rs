//! Tests of what only PostgreSQL does: see `sql/` for the rest.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::faults::free_within;
use tests::{Postgres, PostgresServer, PostgresTable, eventually};

use crate::sql::{end, manager, scene};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_dropped_leave_their_connections_to_others() {
    let (table, pipe, locks, other) = scene::<Postgres>().await;
    let connections = format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{}'",
        table.name()
    );
    let held = format!(
        "SELECT count(*) FROM {} WHERE holder IS NOT NULL",
        table.name()
    );
    let mut seen = HashSet::new();
    for _ in 0..30 {
        // This opens a connection if there is none: a new one would be stalled, too.
        free_within(&locks, "k", LONG).await;
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").acquire());
        let granted = eventually("the server has granted it", async || {
            table.server().query(&held) == ["1"]
        });
        // If it is not granted, a connection is being opened all the same: that is counted, too.
        let _ = tokio::time::timeout(1_000 * MS, granted).await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        pipe.stall_replies(false);
        seen.extend(table.server().query(&connections));
    }
    // These are all connections that the two managers may have at a time.
    assert!(
        seen.len() <= 2 * (8 + 2 + 2 + 1),
        "{} connections",
        seen.len()
    );
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_at_once_and_without_notifications_asks_again_and_again() {
    let table = PostgresTable::new();
    let quiet = format!("{}&lock_notify=off", table.url());
    let (locks, other) = (manager(&table.url()).await, manager(&quiet).await);
    for (holder, waiting, bound) in [(&other, &locks, 700 * MS), (&locks, &other, 1_900 * MS)] {
        let guard = holder.mutex("k").acquire().await.unwrap();
        let waiter = tokio::spawn(waiting.mutex("k").wait(LONG).acquire());
        eventually("the waiter waits", async || {
            waiting.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        let since = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert!(since.elapsed() < bound, "{:?}", since.elapsed());
        next.release().await.unwrap();
    }
    end(table, locks, other).await;
}

#[tokio::test]
async fn a_server_that_cannot_keep_locks_is_refused_with_what_to_do() {
    let table = PostgresTable::new();
    let (server, name) = (table.server(), table.name());
    let made = format!("{name}_made");
    let url = |options: &str| format!("{}?lock_table={made}{options}", server.url());
    drop(
        LockManager::builder()
            .ensure_schema(true)
            .connect(&url(""))
            .await
            .unwrap(),
    );
    server.query(&format!(
        "CREATE UNLOGGED TABLE {name}_unlogged (LIKE {made})"
    ));
    server.query(&format!("CREATE TABLE {name}_other (name text)"));
    server.query("CREATE ROLE nobody LOGIN");
    let other_table = |suffix: &str| format!("{}?lock_table={name}_{suffix}", server.url());
    let cases = [
        (other_table("none"), false, "ensure_schema"),
        (other_table("other"), false, "`kind`"),
        (other_table("unlogged"), false, "not logged"),
        (
            url("&options=-c%20synchronous_commit%3Doff"),
            false,
            "synchronous_commit",
        ),
        (
            url("&options=-c%20default_transaction_read_only%3Don"),
            false,
            "read-only",
        ),
        (
            url("&options=-c%20default_transaction_isolation%3Dserializable"),
            false,
            "read committed",
        ),
        (url("").replace("lock@", "nobody@"), false, "GRANT"),
        (url("").replace("/postgres?", "/missing?"), false, "missing"),
        (url("").replace("lock@", "stranger@"), false, "stranger"),
        (
            url("").replace(&server.port().to_string(), "1"),
            true,
            "refused",
        ),
    ];
    for (url, retryable, names) in cases {
        let refused = LockManager::connect(&url).await.unwrap_err();
        assert!(refused.to_string().contains(names), "{url}: {refused}");
        assert_eq!(refused.is_retryable(), retryable, "{url}: {refused}");
    }
    server.query("DROP ROLE nobody");
}

#[tokio::test]
async fn connections_reconnections_and_statements_are_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let counted = |series: &str| {
        let text = recorder.handle().render();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0.0, |value| value.trim().parse::<f64>().unwrap())
    };
    let connected = || counted("lock_store_connected{store=\"postgres\"}");
    let mut server = PostgresServer::start();
    let locks = manager(&server.url()).await;
    free_within(&locks, "k", LONG).await;
    assert!(connected() >= 1.0);
    for statement in ["acquire", "insert", "release"] {
        let calls = format!(
            "lock_store_calls_total{{store=\"postgres\",script=\"{statement}\",outcome=\"answered\"}}"
        );
        assert!(counted(&calls) >= 1.0, "{calls}");
    }
    server.kill9();
    // The server's other processes go on until they see that the first one has ended.
    eventually("nothing listens there any more", async || {
        let tried = locks.mutex("k").try_acquire().await;
        tried.is_err_and(|error| error.to_string().contains("refused"))
    })
    .await;
    server.restart();
    free_within(&locks, "k", LONG).await;
    assert!(counted("lock_store_reconnections_total{store=\"postgres\"}") >= 1.0);
    locks.shutdown().await;
    eventually("every connection is closed", async || connected() == 0.0).await;
}
