//! Tests of names that cannot be looked up: the last addresses of a name are used, and an error says what was waited for.

use std::sync::mpsc;
use std::time::Duration;

use lock_runtime::LockError;
use tests::faults::{connected, renewed, use_once};
use tests::{Mariadb, Postgres, RedisServer, Sql, Table};
use tokio::runtime::Builder;

const CALL: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(18);

/// Holds a lock while names cannot be looked up, because tokio's one thread for blocking work is busy, and all
/// connections are cut meanwhile. `url` has a name.
fn hold_without_look_ups(url: &str, cut: impl Fn()) {
    assert!(url.contains("localhost"), "{url}");
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let builder = || tests::builder().call_timeout(CALL).ensure_schema(true);
    runtime.block_on(async {
        let locks = connected(builder(), url).await;
        let guard = locks.mutex("held").lease(LEASE).acquire().await.unwrap();
        let (free, freed) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || freed.recv().is_err());
        cut();
        renewed([&guard]).await;
        use_once(locks.mutex("other")).await;
        let released = guard.release().await;
        // On a busy machine, the answer may come later than a call may last.
        assert!(
            matches!(released, Ok(()) | Err(LockError::Unavailable { .. })),
            "{released:?}"
        );

        let refused = builder().connect(url).await.unwrap_err().to_string();
        assert!(refused.contains("still being looked up"), "{refused}");
        assert!(!refused.contains("firewall"), "{refused}");
        drop(free);
        assert!(busy.await.unwrap());
    });
}

fn hold_in_a_table<D: Sql>() {
    let table = Table::<D>::new();
    let (server, port) = (table.server().addr().to_string(), table.server().port());
    let url = table.url().replace(&server, &format!("localhost:{port}"));
    hold_without_look_ups(&url, || table.end_connections());
}

#[test]
fn on_redis_a_hold_outlives_cuts_without_name_lookups() {
    let server = RedisServer::start();
    let url = format!("redis://localhost:{}/", server.port());
    hold_without_look_ups(&url, || server.cut_clients());
}

#[test]
fn on_postgres_a_hold_outlives_cuts_without_name_lookups() {
    hold_in_a_table::<Postgres>();
}

#[test]
fn on_mysql_a_hold_outlives_cuts_without_name_lookups() {
    hold_in_a_table::<Mariadb>();
}
