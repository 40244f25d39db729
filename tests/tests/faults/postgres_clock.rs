//! Tests of the database's clock, which is not the clients' one, and of rows that nobody has used for long by it.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager, LostReason, TryAcquire};
use tests::faults::connected;
use tests::page::documented_clean_up;
use tests::{PostgresServer, PostgresTable, answered, eventually};

use crate::sql::block;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// Two thirds of it are left when a renewal is due.
const LEASE: Duration = Duration::from_secs(15);
/// The lease of a hold that only has to end.
const SHORT: Duration = Duration::from_secs(5);

/// A server whose clock can be set: statements find its own `clock_timestamp` before PostgreSQL's.
struct Shifted(PostgresServer);

impl Shifted {
    fn by(shift: &str) -> Self {
        let server = PostgresServer::start();
        server.query("CREATE SCHEMA shifted");
        server.query("CREATE TABLE shifted.by (shift interval)");
        server.query("INSERT INTO shifted.by VALUES ('0')");
        server.query(
            "CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS 'SELECT pg_catalog.clock_timestamp() + shift FROM shifted.by'",
        );
        let server = Self(server);
        server.set(shift);
        server
    }

    fn set(&self, shift: &str) {
        let set = format!("UPDATE shifted.by SET shift = '{shift}'");
        self.0.query(&set);
    }

    async fn manager(&self) -> LockManager {
        let path = "options=-c%20search_path%3Dshifted%2Cpg_catalog";
        let url = format!("{}?{path}", self.0.url());
        let builder = tests::builder().ensure_schema(true).lease(LEASE);
        connected(builder.call_timeout(LONG), &url).await
    }
}

async fn take(locks: &LockManager, name: &str) -> LockGuard {
    locks.mutex(name).wait(LONG).acquire().await.unwrap()
}

/// Asserts that the lock stays held for longer than a lease.
async fn stays_held(guard: &LockGuard, other: &LockManager) {
    let until = Instant::now() + LEASE * 5 / 4;
    while Instant::now() < until {
        assert!(guard.is_held());
        let seen = answered(async || other.inspect("k").await).await.unwrap();
        assert!(seen.held, "{seen:?}");
        tokio::time::sleep(100 * MS).await;
    }
    // A request has a sixth of its lease, which a busy machine may need for something else.
    let tried = answered(async || other.mutex("k").try_acquire().await).await;
    let tried = tried.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_clock_an_hour_off_works_like_any_other() {
    async fn is_like_any_other(shift: &str) {
        let server = Shifted::by(shift);
        let (locks, other) = (server.manager().await, server.manager().await);
        let guard = take(&locks, "k").await;
        let first = guard.fencing_token().unwrap();
        stays_held(&guard, &other).await;
        let waiter = tokio::spawn({
            let other = other.clone();
            async move { take(&other, "k").await }
        });
        eventually("the waiter waits", async || {
            other.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        assert!(next.fencing_token().unwrap() > first);
        next.release().await.unwrap();
        // This is a holder that nobody hears of again.
        let lost = tokio::task::spawn_blocking(move || {
            let home = tokio::runtime::Runtime::new().unwrap();
            let (guard, since) = home.block_on(async {
                let locks = server.manager().await;
                let since = Instant::now();
                let request = locks.mutex("k").lease(SHORT).wait(LONG);
                (request.acquire().await.unwrap(), since)
            });
            home.shutdown_background();
            (server, guard, since)
        });
        let (_server, lost, since) = lost.await.unwrap();
        // Were the lease an hour longer, this would end with its wait.
        let next = take(&locks, "k").await;
        assert!(since.elapsed() >= SHORT, "{:?}", since.elapsed());
        assert!(!lost.is_held());
        next.release().await.unwrap();
    }

    tokio::join!(is_like_any_other("1 hour"), is_like_any_other("-1 hour"));
}

#[tokio::test]
async fn ids_rise_when_the_database_sets_its_clock_and_wait_for_2026() {
    let server = Shifted::by("0");
    let (locks, other) = (server.manager().await, server.manager().await);
    for shuffled in [false, true] {
        let name = format!("order:{shuffled}");
        let mut last = 0;
        for shift in ["0", "1 hour", "-1 hour", "-1 day", "0", "2 days"] {
            server.set(shift);
            for locks in [&locks, &other] {
                let ids = locks.ids(&*name);
                let ids = if shuffled { ids.shuffled() } else { ids };
                let id = ids.next().await.unwrap();
                // Shuffled ids have no order within a millisecond.
                let bits = if shuffled { 22 } else { 0 };
                assert!(
                    id >> bits >= last >> bits && id != last,
                    "{shift}: {id} after {last}"
                );
                last = id;
            }
        }
    }
    for shift in ["-2 years", "80 years"] {
        server.set(shift);
        let error = locks.ids("other").next().await.unwrap_err();
        assert!(
            matches!(error, LockError::InvalidConfig { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("clock"), "{error}");
    }
    server.set("0");
    assert!(locks.ids("other").next().await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_clock_set_back_ends_no_hold_and_tokens_still_rise() {
    let server = Shifted::by("0");
    let (locks, other) = (server.manager().await, server.manager().await);
    let guard = take(&locks, "k").await;
    let first = guard.fencing_token().unwrap();
    server.set("-1 hour");
    stays_held(&guard, &other).await;
    guard.release().await.unwrap();
    let mut last = first;
    for locks in [&other, &locks, &other] {
        let guard = take(locks, "k").await;
        let token = guard.fencing_token().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_clock_set_forward_ends_leases_early_as_a_loss() {
    let server = Shifted::by("0");
    let (locks, other) = (server.manager().await, server.manager().await);
    let lease = Duration::from_secs(18);
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    server.set("1 hour");
    let next = take(&other, "k").await;
    assert!(next.fencing_token().unwrap() > first);
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    assert!(next.is_held());
    next.release().await.unwrap();
}

#[tokio::test]
async fn the_documented_cleanup_deletes_old_rows_while_tokens_rise() {
    let table = PostgresTable::new();
    let locks = connected(tests::builder().ensure_schema(true), &table.url()).await;
    let (server, name) = (table.server(), table.name());
    let mut tokens = Vec::new();
    for key in ["idle", "dead", "fresh", "held", "from the future", "locked"] {
        let guard = take(&locks, key).await;
        tokens.push((key, guard.fencing_token().unwrap()));
        guard.release().await.unwrap();
    }
    let counted = locks.fenced("counted").acquire().await.unwrap();
    counted.release().await.unwrap();
    locks.semaphore("permits").try_set_permits(3).await.unwrap();
    let by_request = locks.semaphore("by request").in_all(2).permits(1);
    let permit = by_request.clone().acquire().await.unwrap();
    permit.release().await.unwrap();
    let held = take(&locks, "held").await;
    // All rows except two now seem to be ten days old. A holder died at that time, and a clock was a year ahead.
    server.query(&format!(
        "UPDATE {name} SET expires_at = expires_at - interval '10 days', token = token - 864000000000, \
         last_token = last_token - 864000000000 WHERE name NOT IN ('lock:fresh', 'lock:held')"
    ));
    server.query(&format!(
        "UPDATE {name} SET holder = 'x' WHERE name = 'lock:dead'"
    ));
    server.query(&format!(
        "UPDATE {name} SET last_token = last_token + 31536000000000 WHERE name = 'lock:from the future'"
    ));
    let blocker = block(&table, "lock:locked");
    let clean_up = documented_clean_up(include_str!("../../../docs/postgres.md"));
    server.query(&clean_up.replace("lock_leases", name));
    blocker.commit();
    let left = server.query(&format!("SELECT name FROM {name} ORDER BY name"));
    let kept = [
        "counted",
        "fresh",
        "from the future",
        "held",
        "locked",
        "permits",
    ];
    for key in kept.iter().chain(&["by request", "idle", "dead"]) {
        let is_left = left.iter().any(|name| name.ends_with(key));
        assert_eq!(is_left, kept.contains(key), "{key} in {left:?}");
    }
    held.release().await.unwrap();
    for (key, before) in tokens {
        let guard = take(&locks, key).await;
        assert!(guard.fencing_token().unwrap() > before, "{key}");
        guard.release().await.unwrap();
    }
    by_request.acquire().await.unwrap().release().await.unwrap();
    locks.semaphore("permits").delete().await.unwrap();
    drop(locks);
    table.assert_deserted().await;
}
