//! Tests of locks through a pooler that gives each transaction another connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{LockManager, TryAcquire};
use tests::faults::connected;
use tests::{PgbouncerServer, PostgresServer, answered, eventually};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(30);
/// The number of the pooler's connections: fewer than the managers would open.
const CONNECTIONS: usize = 3;

async fn manager(url: &str) -> LockManager {
    let builder = tests::builder().ensure_schema(true);
    connected(builder.call_timeout(LONG), url).await
}

/// Starts a PostgreSQL server, a pooler before it, and two managers that know only the pooler.
async fn scene(options: &str) -> (PostgresServer, PgbouncerServer, [LockManager; 2]) {
    let server = PostgresServer::start();
    let pooler = PgbouncerServer::before(&server, CONNECTIONS);
    let url = format!("{}{options}", pooler.url(&server));
    let managers = [manager(&url).await, manager(&url).await];
    (server, pooler, managers)
}

/// The options of the URL: with notifications, which do not arrive, and without.
const WAYS: [&str; 2] = ["", "?lock_notify=off"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_through_a_pooler_are_renewed_and_move_without_messages() {
    async fn go_through(options: &str) {
        let (_server, _pooler, [locks, other]) = scene(options).await;
        let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
        let leased = locks.semaphore("s").in_all(1).permits(1).lease(LEASE);
        let leased = leased.acquire().await.unwrap();
        let began = Instant::now();
        while began.elapsed() < LEASE * 5 / 4 {
            assert!(guard.is_held() && leased.is_held(), "`{options}`");
            let tried = answered(async || other.mutex("k").try_acquire().await).await;
            assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "`{options}`");
            tokio::time::sleep(50 * MS).await;
        }
        guard.release().await.unwrap();
        leased.release().await.unwrap();
        // The lease outlasts the wait, so its end helps nobody.
        let guard = locks.mutex("k").lease(20 * LONG).acquire().await.unwrap();
        let token = guard.fencing_token();
        let waiting = tokio::spawn(other.mutex("k").wait(LONG).acquire());
        eventually("the other one waits", async || {
            other.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
        for guard in [
            locks.fair("fair").acquire().await.unwrap(),
            locks.write("written").acquire().await.unwrap(),
        ] {
            guard.release().await.unwrap();
        }
    }

    tokio::join!(go_through(WAYS[0]), go_through(WAYS[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holders_share_few_pooled_connections_without_overlap() {
    let (server, _pooler, managers) = scene(WAYS[1]).await;
    let (held, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for task in 0..12 {
        let (locks, held) = (managers[task % 2].clone(), held.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                assert!(!held.swap(true, Ordering::SeqCst), "there are two holders");
                tokio::time::sleep(MS).await;
                held.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
                let own = locks.mutex(format!("k{task}")).acquire().await.unwrap();
                own.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let connections = server.query(
        "SELECT pid FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND application_name <> 'test-support'",
    );
    assert!(connections.len() <= CONNECTIONS, "{connections:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_clients_search_path_leads_to_no_other_table() {
    let server = PostgresServer::start();
    let first = manager(&server.url()).await;
    server.query(
        "CREATE SCHEMA tenant; CREATE TABLE tenant.lock_leases (LIKE public.lock_leases INCLUDING ALL)",
    );
    // There is one session, so every manager has the one whose settings were changed.
    let pooler = PgbouncerServer::before(&server, 1);
    let leave = || pooler.leave(&server, "SET search_path = tenant, public");
    leave();
    let url = format!("{}{}", pooler.url(&server), WAYS[1]);
    let second = manager(&url).await;
    let guard = second.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    let tried = answered(async || first.mutex("k").try_acquire().await).await;
    assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
    server.query("DROP SCHEMA tenant CASCADE; CREATE SCHEMA tenant");
    leave();
    guard.release().await.unwrap();
    let guard = second.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.query("SELECT name FROM lock_leases").len(), 1);
}
