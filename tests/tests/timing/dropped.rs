//! Requests that are dropped, and what becomes of their connections.

use std::collections::HashSet;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::faults::{connected, free_within};
use tests::{Pipe, PostgresTable, eventually};

const LONG: Duration = Duration::from_secs(30);
const REQUESTS: usize = 30;

/// A connection is given up if its server does not end the dropped statement within a tenth of a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_dropped_leave_their_connections_to_others() {
    let table = PostgresTable::new();
    let pipe = Pipe::start(table.server().addr()).await;
    let [direct, through] = [table.server().addr(), pipe.addr()].map(|addr| addr.to_string());
    let builder = LockManager::builder().call_timeout(2 * LONG);
    let connecting = builder.ensure_schema(true);
    let url = table.url().replace(&direct, &through);
    let locks = connected(connecting, &url).await;
    let mut rounds = Vec::new();
    while rounds.last().is_none_or(|seen| *seen > REQUESTS * 2 / 3) {
        // A machine that is loaded may need longer than that time for any statement.
        assert!(rounds.len() < 5, "{rounds:?} connections");
        rounds.push(connections_for_a_round(&table, &pipe, &locks).await);
    }
    drop(locks);
    table.assert_deserted().await;
}

/// Drops requests whose locks were granted, and returns by how many connections that was.
async fn connections_for_a_round(table: &PostgresTable, pipe: &Pipe, locks: &LockManager) -> usize {
    let connections = format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{}'",
        table.name()
    );
    let held = format!(
        "SELECT count(*) FROM {} WHERE holder IS NOT NULL",
        table.name()
    );
    let mut seen = HashSet::new();
    for _ in 0..REQUESTS {
        // This opens a connection if there is none: a new one would be stalled, too.
        free_within(locks, "k", LONG).await;
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").acquire());
        eventually("the server has granted it", async || {
            table.server().ask(&held).await == ["1"]
        })
        .await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        pipe.stall_replies(false);
        seen.extend(table.server().ask(&connections).await);
    }
    seen.len()
}
