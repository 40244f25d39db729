//! Tests of what only PostgreSQL does: see `sql/` for the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LockMode, TryAcquire};
use tests::faults::{connected, free_within, told};
use tests::stops::{STOP, in_one_of_a_few_rounds};
use tests::{
    Blocker, FaultProxy, PostgresServer, PostgresTable, Protocol, Then, answered, eventually,
};
use tokio::task::JoinSet;

use crate::sql::{block, end, manager};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// Starts a proxy in front of the table's server, and returns it with the URL that leads through it.
async fn behind_a_proxy(table: &PostgresTable) -> (FaultProxy, String) {
    let server = table.server().addr();
    let proxy = FaultProxy::of(Protocol::Postgres, server).await;
    let (direct, through) = (server.to_string(), proxy.addr().to_string());
    (proxy, table.url().replace(&direct, &through))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_ends_no_wait_for_permits_surely_not_taken() {
    let table = PostgresTable::new();
    let (proxy, through) = behind_a_proxy(&table).await;
    let patient = tests::builder().call_timeout(LONG);
    let other = connected(patient.clone().ensure_schema(true), &table.url()).await;
    let locks = connected(patient, &through).await;
    let free = other.plain_semaphore("s");
    free.try_set_permits(0).await.unwrap();
    // The statements after the one that has found no permit: a look, and once a note that somebody waits.
    for statement in ["waited_until = ", "AS first_waiters"] {
        proxy.lose_reply_to(move |args| is_about(args, statement), Then::Cut);
        let permits = locks.plain_semaphore("s").permits(1);
        let waiting = tokio::spawn(permits.wait_forever().acquire());
        eventually("the answer is lost", async || proxy.trap_sprung()).await;
        free.add_permits(1).await.unwrap();
        waiting.await.unwrap().unwrap();
        assert_eq!(free.available().await.unwrap(), 0);
    }
    drop(free);
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_listens_for_forced_releases_even_with_notify_off() {
    let table = PostgresTable::new();
    let other = manager(&table.url()).await;
    let (proxy, through) = behind_a_proxy(&table).await;
    proxy.lose_reply_to(|args| is_about(args, "LISTEN"), Then::Cut);
    let quiet = format!("{through}&lock_notify=off");
    let locks = connected(tests::builder().call_timeout(LONG), &quiet).await;
    assert!(proxy.trap_sprung(), "it has sent LISTEN by now");
    end(table, locks, other).await;
}

/// A waiter that listens may get no notification. A release finds it in the row, and then another one's turn comes: a task that comes
/// back at once gets no lock that was handed over.
#[tokio::test]
async fn a_release_learns_of_who_waits_and_listens() {
    let table = PostgresTable::new();
    let (proxy, through) = behind_a_proxy(&table).await;
    let other = manager(&table.url()).await;
    let locks = manager(&through).await;
    let hand_overs = Arc::new(AtomicUsize::new(0));
    let counted = hand_overs.clone();
    proxy.rewrite(move |args| {
        let is_one = is_about(args, "l.holder = $2 OR l.holder = $3");
        counted.fetch_add(usize::from(is_one), SeqCst);
        None
    });
    let comes_back = async || {
        drop(locks.mutex("k").acquire().await.unwrap());
        let back = locks.mutex("k").acquire().await.unwrap();
        back.release().await.unwrap();
        hand_overs.swap(0, SeqCst)
    };
    eventually("it is handed over while nobody waits", async || {
        comes_back().await > 0
    })
    .await;
    in_one_of_a_few_rounds(STOP, "the lock is given back", async || {
        let waits = format!(
            "UPDATE {} SET waited_until = clock_timestamp() + interval '1 hour'",
            table.name()
        );
        table.server().ask(&waits).await;
        let learns = locks.mutex("k").acquire().await.unwrap();
        learns.release().await.unwrap();
        comes_back().await == 0
    })
    .await;
    end(table, locks, other).await;
}

fn is_about(args: &[&[u8]], statement: &str) -> bool {
    let about = |arg: &&[u8]| String::from_utf8_lossy(arg).contains(statement);
    args.iter().any(about)
}

/// A proxy may keep a connection and give it another session. Here, it does so when the connection begins to listen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deaf_session_behind_an_open_connection_is_replaced() {
    let table = PostgresTable::new();
    let other = manager(&table.url()).await;
    let (proxy, through) = behind_a_proxy(&table).await;
    let (is_lost, listens) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    proxy.rewrite({
        let (is_lost, listens) = (is_lost.clone(), listens.clone());
        move |args| {
            if !is_about(args, "LISTEN \"") {
                return None;
            }
            listens.fetch_add(1, SeqCst);
            let deaf = || vec![args[0].to_vec(), b"UNLISTEN *".to_vec()];
            is_lost.load(SeqCst).then(deaf)
        }
    });
    let locks = connected(told().call_timeout(LONG), &through).await;
    is_lost.store(false, SeqCst);
    let before = listens.load(SeqCst);
    eventually("it listens again", async || listens.load(SeqCst) > before).await;
    let guard = other.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("k").acquire());
    eventually("the waiter waits", async || {
        locks.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_or_polls_where_notifications_are_off() {
    let table = PostgresTable::new();
    let (proxy, through) = behind_a_proxy(&table).await;
    let quiet = format!("{through}&lock_notify=off");
    // A release is to be confirmed, however busy the machine is.
    let patient = tests::builder().call_timeout(LONG);
    let locks = connected(patient.clone().ensure_schema(true), &table.url()).await;
    let other = connected(patient, &quiet).await;
    let told = connected(told().call_timeout(LONG), &table.url()).await;
    for (holder, waiting) in [(&other, &told), (&locks, &other)] {
        // The lease outlasts the wait, so its end helps nobody.
        let guard = holder.mutex("k").lease(20 * LONG).acquire().await.unwrap();
        let waiter = tokio::spawn(waiting.mutex("k").wait(LONG).acquire());
        eventually("the waiter waits", async || {
            waiting.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        if std::ptr::eq(waiting, &other) {
            // A question is three messages.
            let before = proxy.requests();
            eventually("it asks again and again", async || {
                proxy.requests() >= before + 6 * 3
            })
            .await;
        }
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    drop(told);
    end(table, locks, other).await;
}

#[tokio::test]
async fn a_server_that_cannot_keep_locks_is_refused_with_what_to_do() {
    let table = PostgresTable::new();
    let (server, name) = (table.server(), table.name());
    let made = format!("{name}_made");
    let url = |options: &str| format!("{}?lock_table={made}{options}", server.url());
    drop(connected(tests::builder().ensure_schema(true), &url("")).await);
    server.query(&format!(
        "CREATE UNLOGGED TABLE {name}_unlogged (LIKE {made})"
    ));
    server.query(&format!("CREATE TABLE {name}_other (name text)"));
    server.query("CREATE ROLE nobody LOGIN");
    server.query(&format!(
        "CREATE TABLE {name}_hidden (LIKE {made} INCLUDING ALL);
         ALTER TABLE {name}_hidden ENABLE ROW LEVEL SECURITY;
         GRANT SELECT, INSERT, UPDATE ON {name}_hidden TO nobody"
    ));
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
        (
            other_table("hidden").replace("lock@", "nobody@"),
            false,
            "row-level security",
        ),
        (url("").replace("/postgres?", "/missing?"), false, "missing"),
        (url("").replace("lock@", "stranger@"), false, "stranger"),
        (
            url("").replace(&server.port().to_string(), "1"),
            true,
            "refused",
        ),
    ];
    for (url, retryable, names) in cases {
        let connecting = async || LockManager::connect(&url).await;
        let refused = match retryable {
            true => connecting().await.unwrap_err(),
            false => answered(connecting).await.unwrap_err(),
        };
        assert!(refused.to_string().contains(names), "{url}: {refused}");
        assert_eq!(refused.is_retryable(), retryable, "{url}: {refused}");
    }
    server.query("DROP OWNED BY nobody; DROP ROLE nobody");
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
    // A statement whose connection ends gets no answer.
    let blocker = Blocker::of(&mut server.client(), "lock_leases", "lock:k");
    let asking = tokio::spawn(locks.read("k").wait(LONG).acquire());
    let waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("the statement waits", async || {
        !server.ask(&format!("SELECT 1 {waiting}")).await.is_empty()
    })
    .await;
    server.query(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
    blocker.commit();
    let calls = "lock_store_calls_total{store=\"postgres\",script=\"read\",outcome=\"unanswered\"}";
    eventually("it is counted", async || counted(calls) >= 1.0).await;
    asking.await.unwrap().unwrap().release().await.unwrap();
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

#[tokio::test]
async fn a_user_who_may_not_create_tables_needs_them_to_be_there() {
    let table = PostgresTable::new();
    let (server, name) = (table.server(), table.name());
    server.query(&format!("CREATE ROLE {name}_app LOGIN"));
    let url = table.url().replace("lock@", &format!("{name}_app@"));
    let builder = tests::builder().ensure_schema(true);
    let refused = answered(async || builder.clone().connect(&url).await).await;
    let refused = refused.unwrap_err();
    let grant = "GRANT CREATE ON SCHEMA public TO";
    assert!(refused.to_string().contains(grant), "{refused}");
    drop(connected(builder.clone(), &table.url()).await);
    server.query(&format!(
        "GRANT SELECT, INSERT, UPDATE ON {name} TO {name}_app; DROP TABLE {name}_managers"
    ));
    let locks = connected(builder, &url).await;
    free_within(&locks, "k", LONG).await;
    drop(locks);
    server.query(&format!(
        "REVOKE ALL ON {name} FROM {name}_app; DROP ROLE {name}_app"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_that_create_one_table_at_once_take_turns() {
    let table = PostgresTable::new();
    let (server, name) = (table.server(), table.name());
    drop(connected(tests::builder().ensure_schema(true), &table.url()).await);
    server.query(&format!(
        "INSERT INTO {name} VALUES ('row', 'exclusive', NULL, 'epoch')"
    ));
    // They wait for a transaction that creates the table, too, and does not commit.
    let mut creating = Blocker::of(&mut server.client(), name, "row");
    creating.tell(&format!("CREATE TABLE {name}_new (name text PRIMARY KEY);"));
    let created = format!(
        "SELECT 1 FROM pg_stat_activity \
         WHERE state = 'idle in transaction' AND query LIKE 'CREATE TABLE {name}_new%'"
    );
    eventually("the transaction has created it", async || {
        !server.ask(&created).await.is_empty()
    })
    .await;
    let url = table.url().replace(
        &format!("lock_table={name}"),
        &format!("lock_table={name}_new"),
    );
    let mut starting = JoinSet::new();
    for _ in 0..6 {
        let builder = tests::builder().ensure_schema(true);
        let (builder, url) = (builder.call_timeout(LONG), url.clone());
        starting.spawn(async move { builder.connect(&url).await });
    }
    let waiting = format!(
        "SELECT pid FROM pg_stat_activity \
         WHERE wait_event_type = 'Lock' AND application_name = '{name}'"
    );
    eventually("all managers wait", async || {
        server.ask(&waiting).await.len() == 6
    })
    .await;
    drop(creating);
    while let Some(started) = starting.join_next().await {
        free_within(&started.unwrap().unwrap(), "k", LONG).await;
    }
}

/// Starts a server, and returns it with the URL of a user who is no superuser.
fn with_a_user() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    server.query("CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app");
    let url = server.url().replace("lock@", "app@");
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_that_the_server_refuses_fail_nothing_else() {
    let (server, url) = with_a_user();
    let (locks, other) = (manager(&url).await, manager(&url).await);
    let guard = locks.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    eventually("releases are to be notified", async || {
        let waited = "SELECT 1 FROM lock_leases WHERE waited_until > now()";
        !server.ask(waited).await.is_empty()
    })
    .await;
    server.query("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC");
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    // This manager knows it from the beginning.
    let third = manager(&url).await;
    for locks in [&locks, &third] {
        let permit = locks.semaphore("s").in_all(1).permits(1).acquire().await;
        permit.unwrap().release().await.unwrap();
        for lock in [locks.fair("f"), locks.read("rw"), locks.write("rw")] {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        assert!(locks.latch("l").try_set_count(1).await.unwrap());
        assert_eq!(locks.latch("l").count_down().await.unwrap(), 0);
        let lost = locks.mutex("k").acquire().await.unwrap();
        assert!(locks.force_release("k").await.unwrap());
        drop(lost);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_tells_of_a_table_that_cannot_be_written() {
    let (server, url) = with_a_user();
    let locks = manager(&url).await;
    assert!(locks.health().await.is_ok());
    for (harm, repair) in [
        (
            "REVOKE UPDATE ON lock_leases FROM app",
            "GRANT UPDATE ON lock_leases TO app",
        ),
        (
            "REVOKE INSERT ON lock_leases FROM app",
            "GRANT INSERT ON lock_leases TO app",
        ),
        (
            "ALTER TABLE lock_leases RENAME TO away",
            "ALTER TABLE away RENAME TO lock_leases",
        ),
    ] {
        server.query(harm);
        assert!(!locks.health().await.is_ok(), "{harm}");
        server.query(repair);
        eventually("the server can keep locks again", async || {
            locks.health().await.is_ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_whose_cancellation_is_lost_ends_by_itself() {
    let table = PostgresTable::new();
    let (proxy, through) = behind_a_proxy(&table).await;
    let builder = tests::builder().ensure_schema(true);
    let locks = connected(builder.call_timeout(8_000 * MS), &through).await;
    let read = locks.read("k").acquire().await.unwrap();
    read.release().await.unwrap();
    let blocker = block(&table, "lock:k");
    let waiting = format!(
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{}'",
        table.name()
    );
    let asking = tokio::spawn(locks.read("k").wait(LONG).acquire());
    eventually("the statement waits for the row", async || {
        !table.server().ask(&waiting).await.is_empty()
    })
    .await;
    // A cancellation has a connection of its own.
    proxy.refuse(true);
    asking.abort();
    eventually("no statement waits for the row", async || {
        table.server().ask(&waiting).await.is_empty()
    })
    .await;
    drop(blocker);
    proxy.refuse(false);
    free_within(&locks, "k", LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_statements_of_a_count_share_one_call_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(18);
    let table = PostgresTable::new();
    let builder = tests::builder().ensure_schema(true);
    let locks = connected(builder.call_timeout(TIMEOUT), &table.url()).await;
    let (latch, name) = (locks.latch("l"), table.name());
    latch.try_set_count(1).await.unwrap();
    locks.latch("m").try_set_count(1).await.unwrap();
    let mut blocker = block(&table, "lock:l");
    blocker.tell(&format!(
        "UPDATE {name} SET permits = NULL WHERE name = 'lock:l';"
    ));
    let began = Instant::now();
    let counting = tokio::spawn(async move { latch.count_down().await });
    // The first statement waits for the row and finds it open. The second one waits for the table.
    let server = table.server();
    let wait = async |mode: &str| {
        let pids = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)";
        let waiting = format!("{pids} WHERE NOT granted AND {mode} AND query LIKE '%{name}%'");
        eventually("it waits", async || !server.ask(&waiting).await.is_empty()).await;
    };
    wait("locktype IN ('tuple', 'transactionid')").await;
    let mut whole = block(&table, "lock:m");
    whole.tell(&format!("LOCK TABLE {name};"));
    wait("mode = 'AccessExclusiveLock'").await;
    tokio::time::sleep_until((began + TIMEOUT * 2 / 3).into()).await;
    let freed = began.elapsed();
    blocker.commit();
    let refused = counting.await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
    let took = began.elapsed();
    assert!(
        took < freed + TIMEOUT,
        "{took:?} of which {freed:?} for the row"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_an_operator_made_endless_is_busy_until_forced() {
    let table = PostgresTable::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    let guard = locks.mutex("k").lease(20 * LONG).acquire().await.unwrap();
    let endless = "SET expires_at = 'infinity'";
    table
        .server()
        .query(&format!("UPDATE {} {endless}", table.name()));
    for tried in [
        answered(async || other.mutex("k").try_acquire().await).await,
        answered(async || other.fair("k").try_acquire().await).await,
    ] {
        assert!(matches!(tried, Ok(TryAcquire::Busy { .. })), "{tried:?}");
    }
    let waiting = async || other.fair("k").wait(3_000 * MS).acquire().await;
    let waited = answered(waiting).await.unwrap_err();
    assert!(matches!(waited, LockError::Busy { .. }), "{waited:?}");
    assert!(other.inspect("k").await.unwrap().held);
    assert!(other.force_release("k").await.unwrap());
    drop(guard);
    free_within(&other, "k", LONG).await;
    end(table, locks, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_where_the_table_name_is_a_word_of_sql() {
    let server = PostgresServer::start();
    server.query("CREATE SCHEMA app");
    let url = format!("{}?lock_table=app.order", server.url());
    let locks = connected(told().ensure_schema(true), &url).await;
    let other = connected(told().ensure_schema(true), &url).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn(other.mutex("k").acquire());
    let listening = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %'";
    eventually("it waits and listens", async || {
        let waits = other.inspect("k").await.unwrap().local_waiters == 1;
        waits && !server.ask(listening).await.is_empty()
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_lock_is_shown_as_one_while_a_statement_writes_its_row() {
    let table = PostgresTable::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    let readers = [
        locks.read("k").acquire().await.unwrap(),
        other.read("k").acquire().await.unwrap(),
    ];
    let mut blocker = block(&table, "lock:k");
    blocker.tell(&format!("UPDATE {} SET kind = kind;", table.name()));
    for _ in 0..10 {
        let seen = locks.inspect("k").await.unwrap();
        let shown = (seen.mode, seen.readers);
        assert_eq!(shown, (Some(LockMode::Read), 2), "{seen:?}");
        tokio::time::sleep(10 * MS).await;
    }
    blocker.commit();
    for reader in readers {
        reader.release().await.unwrap();
    }
    end(table, locks, other).await;
}
