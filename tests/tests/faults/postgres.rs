//! PostgreSQL that fails: what was granted stays granted or is lost on time, and what nobody waits for is undone.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LostReason};
use tests::faults::{at_each_poll, free_within, poll_times, took};
use tests::{Pipe, PostgresServer, PostgresTable, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
const CALL: Duration = Duration::from_millis(500);

async fn manager(url: &str) -> LockManager {
    let builder = LockManager::builder()
        .call_timeout(CALL)
        .ensure_schema(true);
    builder.connect(url).await.unwrap()
}

/// A URL that leads through the proxy.
fn through(pipe: &Pipe, table: &PostgresTable) -> String {
    let direct = table.server().addr().to_string();
    table.url().replace(&direct, &pipe.addr().to_string())
}

/// Two managers on one table, the first one through a proxy.
async fn scene() -> (PostgresTable, Pipe, LockManager, LockManager) {
    let table = PostgresTable::new();
    let pipe = Pipe::start(table.server().addr()).await;
    let locks = manager(&through(&pipe, &table)).await;
    let other = manager(&table.url()).await;
    (table, pipe, locks, other)
}

async fn end(table: PostgresTable, locks: LockManager, other: LockManager) {
    table.assert_clean().await;
    drop((locks, other));
    table.assert_deserted().await;
}

/// Opens a transaction that locks a row, and keeps it open until the sender is dropped.
struct Blocker(tests::Worker);

impl Blocker {
    fn of(table: &PostgresTable, name: &str) -> Self {
        let url = format!("{}?application_name=test-support", table.server().url());
        let mut psql = tests::postgres::program("psql");
        let mut session = tests::Worker::spawn(psql.args(["-X", "-q", "-A", "-t", "-d", &url]));
        session.tell("BEGIN;");
        let (table, name) = (table.name(), name);
        session.tell(&format!(
            "SELECT 'locked' FROM {table} WHERE name = '{name}' FOR UPDATE;"
        ));
        session.expect_line("locked");
        Self(session)
    }

    fn commit(mut self) {
        self.0.tell("COMMIT; SELECT 'done';");
        self.0.expect_line("done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_outlast_a_crash_of_the_server() {
    let mut server = PostgresServer::start();
    let (locks, other) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    eventually("the waiter waits", async || {
        other
            .inspect("k")
            .await
            .is_ok_and(|info| info.local_waiters == 1)
    })
    .await;
    server.restart();
    assert!(guard.is_held(), "a crash is no loss");
    eventually("the server keeps the lock", async || {
        locks.inspect("k").await.is_ok_and(|info| info.held)
    })
    .await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.fencing_token().unwrap() > first);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_lost_on_time_while_the_server_is_frozen_and_the_next_token_is_higher() {
    let server = PostgresServer::start();
    let (locks, other) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    server.sigstop();
    let (reason, after) = took(guard.lost().wait()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(after <= 1_500 * MS, "{after:?}");
    let refused = other.mutex("k").wait(100 * MS).acquire().await;
    assert!(
        matches!(
            refused,
            Err(LockError::Unavailable { .. } | LockError::Busy { .. })
        ),
        "{refused:?}"
    );
    server.sigcont();
    let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token().unwrap() > first);
    next.release().await.unwrap();
    free_within(&other, "k", LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_by_the_server_end_no_hold_and_no_wait() {
    let (table, _pipe, locks, other) = scene().await;
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    for _ in 0..3 {
        let end_all = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
            table.name()
        );
        table.server().query(&end_all);
        eventually("a renewal is due", async || {
            assert!(guard.is_held());
            guard.remaining() < 1_000 * MS
        })
        .await;
        eventually("it is renewed", async || guard.remaining() > 1_200 * MS).await;
    }
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_answer_is_late_is_undone() {
    let (table, pipe, locks, other) = scene().await;
    free_within(&locks, "k", LONG).await;
    for name in ["k", "a name without a row"] {
        pipe.stall_replies(true);
        let refused = locks.mutex(name).try_acquire().await;
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
        pipe.stall_replies(false);
        free_within(&other, name, LONG).await;
    }
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_connection_is_cut_is_undone() {
    let (table, pipe, locks, other) = scene().await;
    free_within(&locks, "k", LONG).await;
    for _ in 0..5 {
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").try_acquire());
        let (table, held) = (&table, "SELECT count(*) FROM");
        eventually("the server has granted it", async || {
            let held = format!("{held} {} WHERE holder IS NOT NULL", table.name());
            table.server().query(&held) == ["1"]
        })
        .await;
        pipe.cut();
        pipe.stall_replies(false);
        let refused = asking.await.unwrap();
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
        free_within(&other, "k", LONG).await;
    }
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_dropped_at_any_poll_leaves_nothing_behind() {
    let (table, _pipe, locks, other) = scene().await;
    for key in ["mutex", "fair", "write", "read", "semaphore"] {
        if key == "semaphore" {
            locks.semaphore(key).try_set_permits(1).await.unwrap();
        }
        at_each_poll(async |polls, leave| {
            let request = match key {
                "mutex" => locks.mutex(key),
                "fair" => locks.fair(key),
                "write" => locks.write(key),
                "read" => locks.read(key),
                _ => locks.semaphore(key).permits(1),
            };
            let acquired = poll_times(request.wait(LONG).acquire(), polls, leave).await;
            acquired.is_some()
        })
        .await;
        eventually("nothing is held", async || {
            let info = other.inspect(key).await.unwrap();
            !info.held && info.waiters == 0
        })
        .await;
    }
    locks.semaphore("semaphore").delete().await.unwrap();
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_a_transaction_has_locked_holds_up_its_own_lock_alone() {
    let (table, _pipe, locks, other) = scene().await;
    for n in 0..12 {
        free_within(&locks, &format!("blocked-{n}"), LONG).await;
    }
    let guard = locks
        .mutex("kept")
        .lease(1_500 * MS)
        .acquire()
        .await
        .unwrap();
    // Renewed in one batch with the other one.
    let locked = locks.mutex("locked").lease(1_500 * MS);
    let locked = locked.acquire().await.unwrap();
    let mut blockers = vec![Blocker::of(&table, "lock:locked")];
    let others = (0..12).map(|n| Blocker::of(&table, &format!("lock:blocked-{n}")));
    blockers.extend(others);
    let began = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..12 {
        asking.spawn(
            locks
                .mutex(format!("blocked-{n}"))
                .wait(2_000 * MS)
                .acquire(),
        );
    }
    // Releases and renewals have connections that acquires cannot take.
    while began.elapsed() < 3_000 * MS {
        assert!(guard.is_held());
        tokio::time::sleep(50 * MS).await;
    }
    assert_eq!(locked.lost().wait().await, LostReason::Expired);
    drop(locked);
    let (released, after) = took(guard.release()).await;
    released.unwrap();
    assert!(after < CALL, "{after:?}");
    while let Some(refused) = asking.join_next().await {
        let refused = refused.unwrap();
        assert!(
            matches!(
                refused,
                Err(LockError::Unavailable { .. } | LockError::Busy { .. })
            ),
            "{refused:?}"
        );
    }
    blockers.into_iter().for_each(Blocker::commit);
    for n in 0..12 {
        free_within(&other, &format!("blocked-{n}"), LONG).await;
    }
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_request_that_was_given_up_behind_a_locked_row_takes_no_lock_and_no_place() {
    let (table, _pipe, locks, other) = scene().await;
    locks
        .fair("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for _ in 0..3 {
        let blocker = Blocker::of(&table, "lock:k");
        let refused = locks.fair("k").wait(700 * MS).acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        blocker.commit();
        let next = other.fair("k").wait(4_000 * MS).acquire().await.unwrap();
        next.release().await.unwrap();
    }
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
async fn names_are_compared_byte_for_byte() {
    let table = PostgresTable::new();
    let locks = manager(&table.url()).await;
    let names = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "a\n",
        "'; DROP TABLE x; --",
    ];
    let mut guards = Vec::new();
    for name in names {
        let taken = locks.mutex(name).wait(Duration::ZERO).acquire().await;
        guards.push(taken.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    let longest = "x".repeat(512 - "lock:".len());
    guards.push(locks.mutex(longest).acquire().await.unwrap());
    let refused = locks.mutex("a\0b").acquire().await.unwrap_err();
    assert!(
        matches!(refused, LockError::InvalidName { .. }),
        "{refused:?}"
    );
    for guard in guards {
        guard.release().await.unwrap();
    }
    drop(locks);
    table.assert_deserted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_row_is_a_lost_lock() {
    let (table, _pipe, locks, other) = scene().await;
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    table.empty();
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    drop(guard);
    let next = other.mutex("k").acquire().await.unwrap();
    eventually_within(LONG, "it is held again", async || {
        locks.inspect("k").await.unwrap().held
    })
    .await;
    next.release().await.unwrap();
    end(table, locks, other).await;
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
        let calls =
            format!("lock_store_calls_total{{script=\"{statement}\",outcome=\"answered\"}}");
        assert!(counted(&calls) >= 1.0, "{calls}");
    }
    server.kill9();
    // Its other processes serve on until they see that the first one has ended.
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
