//! Tests of what only MySQL and MariaDB do: see `sql/` for the rest.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::{connected, free_within, renewed};
use tests::mariadb::NOW;
use tests::mysql::is_meant;
use tests::page::documented_clean_up;
use tests::{
    Blocker, Events, FaultProxy, MariadbServer, MariadbTable, Protocol, Then, Worker, answered,
    eventually, eventually_within,
};

use crate::mysql_cost::{WRITES, counted};
use crate::sql::{block, end, manager};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_judges_leases_by_the_time_after_its_wait_for_a_row() {
    let table = MariadbTable::new();
    let other = manager(&table.url()).await;
    let builder = tests::builder().call_timeout(LONG).lease(60 * LONG);
    let patient = connected(builder, &table.url()).await;
    // A mutex would not wait for the row.
    let guard = other.write("k").auto_renew(false).acquire().await.unwrap();
    let mut blocker = block(&table, "lock:k");
    let asking = tokio::spawn(patient.write("k").try_acquire());
    eventually("it waits for the row", async || {
        !waits_for_a_row(&table).is_empty()
    })
    .await;
    // The lease ends after the request was sent, and before the row is free.
    blocker.tell(&format!(
        "UPDATE {} SET expires_at = {NOW} WHERE name = 'lock:k';",
        table.name()
    ));
    tokio::time::sleep(100 * MS).await;
    assert!(!asking.is_finished());
    blocker.commit();
    let granted = asking.await.unwrap().unwrap();
    let TryAcquire::Acquired(next) = granted else {
        panic!("{granted:?}");
    };
    drop(guard);
    next.release().await.unwrap();
    end(table, patient, other).await;
}

/// Returns the connections of the table's managers that take a lock just now.
fn waits_for_a_row(table: &MariadbTable) -> Vec<String> {
    table.server().query(&format!(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{}' AND COMMAND = 'Query' AND INFO LIKE 'UPDATE%kind%'",
        table.name()
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_given_up_behind_a_locked_row_takes_nothing_later() {
    let table = MariadbTable::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    drop(locks.write("k").acquire().await.unwrap());
    table.assert_clean().await;
    let blocker = block(&table, "lock:k");
    let began = Instant::now();
    let refused = locks.write("k").try_acquire().await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    // No statement of the request waits in the server any more.
    eventually("its statement has ended", async || {
        waits_for_a_row(&table).is_empty()
    })
    .await;
    blocker.commit();
    let held = format!(
        "SELECT holder FROM {} WHERE holder IS NOT NULL",
        table.name()
    );
    for _ in 0..10 {
        assert_eq!(table.server().query(&held), Vec::<String>::new());
        tokio::time::sleep(20 * MS).await;
    }
    end(table, locks, other).await;
}

/// Writes by hand, for an hour, that somebody holds the lock. A manager that had it would look for forced releases.
fn held_by(server: &MariadbServer, holder: &str) {
    server.query(&is_held_by(holder));
}

fn is_held_by(holder: &str) -> String {
    format!(
        "INSERT INTO lock_leases (name, kind, holder, expires_at) \
         VALUES ('lock:k', 'exclusive', '{holder}', {NOW} + 3600000000) \
         ON DUPLICATE KEY UPDATE holder = '{holder}', expires_at = {NOW} + 3600000000"
    )
}

fn is_free(server: &MariadbServer) {
    server.query(&format!("UPDATE lock_leases SET expires_at = {NOW}"));
}

fn looks(server: &MariadbServer) -> i64 {
    counted(server, &["Com_select"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_waiter_of_a_process_polls_more_rarely_and_locks_no_row() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    held_by(&server, "somebody");
    let mut waiting = tokio::task::JoinSet::new();
    let (began, before) = (Instant::now(), [looks(&server), counted(&server, &WRITES)]);
    for _ in 0..200 {
        waiting.spawn(locks.mutex("k").wait(100 * LONG).acquire());
    }
    let looks = || looks(&server) - before[0];
    eventually_within(10 * LONG, "it has looked many times", async || {
        looks() >= 40
    })
    .await;
    let seconds = began.elapsed().as_secs_f64();
    // About eight looks in each doubling of the time, from 80 ms on: 40 looks take two seconds or more. Other statements are
    // counted, too: of the connections that are opened, and of those that are asked whether they are alive.
    assert!(seconds > 0.8, "{} looks in {seconds} s", looks());
    // The pauses do not grow without end: they are a second at most, give or take.
    let after = looks();
    eventually_within(10 * LONG, "it looks again", async || looks() >= after + 4).await;
    let writes = (counted(&server, &WRITES) - before[1]) as f64;
    let seconds = began.elapsed().as_secs_f64();
    // It says once a second that it waits.
    assert!(
        writes <= 2.0 * seconds + 8.0,
        "{writes} writes in {seconds} s"
    );
    is_free(&server);
    let next = waiting.join_next().await.unwrap().unwrap().unwrap();
    waiting.abort_all();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_does_not_block_on_a_row_locked_by_a_transaction() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    held_by(&server, "somebody");
    let blocker = Blocker::of(&mut server.client(), "lock_leases", "lock:k");
    let waiting = tokio::spawn(locks.mutex("k").wait(100 * LONG).acquire());
    let before = counted(&server, &WRITES);
    eventually("it would say that it waits", async || {
        counted(&server, &WRITES) >= before + 5
    })
    .await;
    let notes = "SELECT ID FROM information_schema.PROCESSLIST \
                 WHERE COMMAND = 'Query' AND INFO LIKE 'UPDATE%polled_until%'";
    // One that waited for the row would be under way all the time.
    eventually("no note waits for the row", async || {
        let under_way = (0..20).filter(|_| !server.query(notes).is_empty());
        under_way.count() <= 10
    })
    .await;
    blocker.commit();
    is_free(&server);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_does_not_poll_more_rarely_as_the_lock_changes_hands() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    held_by(&server, "somebody");
    let waiting = tokio::spawn(locks.mutex("k").wait(100 * LONG).acquire());
    // The waiter says once a second that it waits: by the only updates in the server.
    let notes = || counted(&server, &["Com_update"]);
    let looks_in_four_notes = async || {
        let (before, last) = (looks(&server), notes() + 4);
        eventually_within(10 * LONG, "it says that it waits", async || notes() >= last).await;
        looks(&server) - before
    };
    // Meanwhile the pauses become long.
    looks_in_four_notes().await;
    let rarely = looks_in_four_notes().await;
    let mut others = Worker::spawn(&mut server.client());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let changing = std::thread::spawn(move || {
        let mut changes = 0;
        while stopped.recv_timeout(20 * MS) == Err(RecvTimeoutError::Timeout) {
            others.tell(&format!("{};", is_held_by(&changes.to_string())));
            changes += 1;
        }
        others.tell("SELECT 'done';");
        others.expect_line("done");
    });
    // On a busy machine, a look may take longer than the pause before it.
    eventually_within(10 * LONG, "it looks twice as often", async || {
        looks_in_four_notes().await > 2 * rarely
    })
    .await;
    drop(stop);
    changing.join().unwrap();
    is_free(&server);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_keep_locks_is_refused_with_what_to_do() {
    let table = MariadbTable::new();
    let (server, name) = (table.server(), table.name());
    let made = format!("{name}_made");
    let url = |table: &str| format!("{}?lock_table={table}", server.url());
    let create = tests::builder().ensure_schema(true);
    drop(connected(create, &url(&made)).await);
    server.query(&format!("CREATE TABLE {name}_memory LIKE {made}; ALTER TABLE {name}_memory DROP shares, DROP queue, ENGINE = MEMORY"));
    server.query(&format!("CREATE TABLE {name}_other (name VARBINARY(512))"));
    server.query(&format!(
        "CREATE TABLE {name}_text LIKE {made}; ALTER TABLE {name}_text MODIFY name VARCHAR(100)"
    ));
    server.query(&format!(
        "CREATE USER 'reader_of_{name}'@'%'; GRANT SELECT ON locks.* TO 'reader_of_{name}'@'%'"
    ));
    let reader = url(&made).replace("lock@", &format!("reader_of_{name}@"));
    let stranger = match is_meant() {
        true => "does not exist",
        false => "stranger",
    };
    let cases = [
        (url(&format!("{name}_none")), false, "ensure_schema"),
        (url(&format!("{name}_other")), false, "`kind`"),
        (url(&format!("{name}_memory")), false, "InnoDB"),
        (url(&format!("{name}_text")), false, "VARBINARY(512)"),
        (
            url(&made).replace("/locks?", "/?"),
            false,
            "names no database",
        ),
        (url(&made).replace("/locks?", "/missing?"), false, "missing"),
        (reader, false, "denied"),
        (url(&made).replace("lock@", "stranger@"), false, stranger),
        (
            url(&made).replace(&server.port().to_string(), "1"),
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
    let strict = tests::builder().strict(true);
    let refused = answered(async || strict.clone().connect(&url(&made)).await).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("innodb_flush_log_at_trx_commit"),
        "{refused}"
    );
}

#[tokio::test]
async fn server_settings_that_forget_or_misjudge_locks_are_refused() {
    for (setting, names) in [
        (
            "innodb-flush-log-at-trx-commit=0",
            "innodb_flush_log_at_trx_commit",
        ),
        ("sysdate-is-now", "sysdate_is_now"),
        ("read-only=1", "read-only"),
    ] {
        let server = MariadbServer::with(&[setting]);
        let builder = tests::builder().ensure_schema(!setting.contains("read-only"));
        if setting.contains("read-only") {
            // The table is made by the one user whom the option does not concern.
            server.query("SET GLOBAL read_only = 0");
            drop(manager(&server.url()).await);
            server.query(
                "CREATE USER app@'%'; GRANT ALL ON locks.* TO app@'%'; SET GLOBAL read_only = 1",
            );
        }
        let url = match setting.contains("read-only") {
            true => server.url().replace("lock@", "app@"),
            false => server.url(),
        };
        let refused = answered(async || builder.clone().connect(&url).await).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(names), "{setting}: {refused}");
    }
}

#[tokio::test]
async fn a_user_who_may_not_create_tables_needs_them_to_be_there() {
    let table = MariadbTable::new();
    let (server, name) = (table.server(), table.name());
    let user = format!("{name}_app");
    server.query(&format!(
        "CREATE USER {user}@'%'; GRANT SELECT ON locks.* TO {user}@'%'"
    ));
    let url = format!("{}?lock_table={name}", server.url()).replace("lock@", &format!("{user}@"));
    let builder = tests::builder().ensure_schema(true);
    let refused = answered(async || builder.clone().connect(&url).await).await;
    let refused = refused.unwrap_err();
    let grant = "GRANT CREATE ON `locks`.* TO";
    assert!(refused.to_string().contains(grant), "{refused}");
    drop(connected(builder.clone(), &table.url()).await);
    server.query(&format!(
        "GRANT SELECT, INSERT, UPDATE ON locks.{name} TO {user}@'%'; DROP TABLE {name}_managers"
    ));
    let locks = connected(builder, &url).await;
    free_within(&locks, "k", LONG).await;
    drop(locks);
    server.query(&format!("DROP USER {user}@'%'"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_rows_that_the_server_sets_loses_no_hold() {
    let server = MariadbServer::start();
    server.query("SET GLOBAL sql_select_limit = 1, GLOBAL max_join_size = 1");
    let locks = manager(&server.url()).await;
    let (one, two) = (locks.mutex("one"), locks.mutex("two"));
    let one = one.lease(18_000 * MS).acquire().await.unwrap();
    let two = two.lease(18_000 * MS).acquire().await.unwrap();
    renewed([&one, &two]).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chained_transactions_and_safe_updates_still_show_the_holder() {
    let server = MariadbServer::start();
    server.query("SET GLOBAL completion_type = 1, GLOBAL sql_safe_updates = 1");
    let (locks, other) = (manager(&server.url()).await, manager(&server.url()).await);
    free_within(&locks, "k", LONG).await;
    // The next statement has the same connection as this one.
    assert!(!locks.force_release("k").await.unwrap());
    let guard = locks.mutex("k").lease(LONG).acquire().await.unwrap();
    eventually("others see the lock and the app", async || {
        let holder = other.inspect("k").await.unwrap().holder;
        holder.is_some_and(|holder| holder.app().is_some())
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_cleanup_deletes_old_rows_and_locks_no_others() {
    let table = MariadbTable::new();
    let (locks, name) = (manager(&table.url()).await, table.name());
    for key in [
        "a",
        "dead",
        "from the future",
        "held",
        "idle",
        "locked",
        "z",
    ] {
        free_within(&locks, key, LONG).await;
    }
    let counted = locks.fenced("counted").acquire().await.unwrap();
    counted.release().await.unwrap();
    let held = locks.mutex("held").lease(18_000 * MS);
    let held = held.acquire().await.unwrap();
    table.server().query(&format!(
        "UPDATE {name} SET expires_at = expires_at - 864000000000, last_token = last_token - 864000000000 \
         WHERE name NOT IN ('lock:a', 'lock:held', 'lock:z'); \
         UPDATE {name} SET holder = 'x' WHERE name = 'lock:dead'; \
         UPDATE {name} SET last_token = last_token + 31536000000000 WHERE name = 'lock:from the future'"
    ));
    let blockers = ["lock:locked", "lock:a"].map(|key| block(&table, key));
    let clean_up = documented_clean_up(include_str!("../../../docs/mysql.md"));
    let clean_up = clean_up.replace("lock_leases", name);
    let mut cleaning = Worker::spawn(&mut table.server().client());
    // The end of the transaction would hide which rows it has locked.
    cleaning.tell(&clean_up.replace("DELETE l", "BEGIN; DELETE l"));
    cleaning.tell("SELECT 'deleted';");
    cleaning.expect_line("deleted");
    blockers.into_iter().for_each(Blocker::commit);
    let kept = [
        "lock:a",
        "lock:counted",
        "lock:from the future",
        "lock:held",
        "lock:locked",
        "lock:z",
    ];
    for key in kept {
        block(&table, key).commit();
    }
    renewed([&held]).await;
    cleaning.tell("COMMIT; SELECT 'committed';");
    cleaning.expect_line("committed");
    let left = format!("SELECT name FROM {name} ORDER BY name");
    assert_eq!(table.server().query(&left), kept);
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_grants_nothing_to_a_user_that_may_write() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    // The second connection of the pool was never used when the server becomes a replica.
    free_within(&locks, "k", LONG).await;
    let plain = locks.plain_semaphore("plain");
    assert!(plain.try_set_permits(1).await.unwrap());
    let latch = locks.latch("latch");
    assert!(latch.try_set_count(1).await.unwrap());
    server.query("SET GLOBAL read_only = 1");
    let taken = plain.permits(1).try_acquire().await;
    assert!(!matches!(taken, Ok(TryAcquire::Acquired(()))), "{taken:?}");
    // The new primary would not know of it.
    let counted = latch.count_down().await;
    assert!(counted.is_err(), "{counted:?}");
    eventually(
        "the manager says that the server is read-only",
        async || match locks.mutex("k").try_acquire().await {
            Ok(tried) => panic!("{tried:?}"),
            Err(error) => error.to_string().contains("read-only"),
        },
    )
    .await;
    assert!(!locks.health().await.is_ok());
    server.query("SET GLOBAL read_only = 0");
    free_within(&locks, "k", LONG).await;
    assert!(locks.health().await.is_ok());
}

/// The connection that looks was used a moment before, so that it gives no sign of life before it looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_lacks_is_not_taken_for_gone() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    free_within(&locks, "k", LONG).await;
    // A replica that lags has no row of this latch yet, and a latch that nobody has set is open.
    server.query("SET GLOBAL read_only = 1");
    let latch = locks.latch("latch");
    let waited = latch.opened().wait(Duration::ZERO).await;
    assert!(waited.is_err(), "{waited:?}");
    server.query("SET GLOBAL read_only = 0");
    eventually("it is open at a primary", async || {
        latch.opened().wait(Duration::ZERO).await.is_ok()
    })
    .await;
}

/// Its lease is so short that the connection which looks after it gives no sign of life before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_a_replica_lacks_is_not_refused() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    let request = locks.mutex("k").lease(2_000 * MS).auto_renew(false);
    let guard = answered(async || request.clone().acquire().await).await;
    let guard = guard.unwrap();
    server.query("SET GLOBAL read_only = 1");
    server.query("DELETE FROM lock_leases");
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    server.query("SET GLOBAL read_only = 0");
}

/// Holds that are renewed, and holds that are only looked at, are asked about together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_that_fails_does_not_take_the_renewals_beside_it_along() {
    let table = MariadbTable::new();
    let (proxy, locks) = behind_a_proxy(&table, |sent| {
        if sent.starts_with("SELECT l.name, l.holder, TRUE") {
            "SIGNAL SQLSTATE '45000'".to_owned()
        } else {
            sent.to_owned()
        }
    })
    .await;
    let lease = 15_000 * MS;
    let fixed = locks.mutex("fixed").lease(lease).auto_renew(false);
    let fixed = fixed.acquire().await.unwrap();
    let renewed = locks.mutex("renewed").lease(lease).acquire().await.unwrap();
    assert_eq!(fixed.lost().wait().await, LostReason::Expired);
    assert!(proxy.rewrites() > 0);
    let over = Instant::now() + lease / 2;
    while Instant::now() < over {
        assert!(renewed.is_held());
        tokio::time::sleep(20 * MS).await;
    }
    renewed.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_whose_renewals_do_not_fit_into_one_packet_are_kept() {
    let server = MariadbServer::with(&["max-allowed-packet=65536"]);
    let builder = tests::builder().ensure_schema(true);
    let locks = connected(builder.call_timeout(LONG), &server.url()).await;
    let (mut guards, long) = (Vec::new(), "n".repeat(400));
    for n in 0..100 {
        let lock = locks.mutex(format!("{long}{n}")).lease(LONG);
        guards.push(lock.acquire().await.unwrap());
        let read = locks.read("shared").lease(LONG).acquire().await.unwrap();
        guards.push(read);
    }
    renewed(&guards).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// So a row looks after a write was given back, if the clock is set back then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_row_with_a_future_end_are_released_by_force() {
    let server = MariadbServer::start();
    let locks = manager(&server.url()).await;
    let read = locks.read("k").auto_renew(false);
    let reader = read.acquire().await.unwrap();
    server.query(&format!(
        "UPDATE lock_leases SET expires_at = {NOW} + 3600000000"
    ));
    assert!(locks.force_release("k").await.unwrap());
    // A read is checked after nine seconds. On a busy machine, that may find the loss before the message comes.
    let reason = reader.lost().wait().await;
    let told = [LostReason::ForceReleased, LostReason::Refused];
    assert!(told.contains(&reason), "{reason:?}");
}

/// Starts a manager behind a proxy, which sends what `rewritten` returns in place of a statement.
async fn behind_a_proxy(
    table: &MariadbTable,
    rewritten: impl Fn(&str) -> String + Send + 'static,
) -> (FaultProxy, LockManager) {
    let proxy = FaultProxy::of(Protocol::Mysql, table.server().addr()).await;
    proxy.rewrite(move |words| {
        let [kind, sent] = words else { return None };
        let sent = std::str::from_utf8(sent).ok()?;
        let others = rewritten(sent);
        (others != sent).then(|| vec![kind.to_vec(), others.into_bytes()])
    });
    let locks = manager(&table.url_through(proxy.addr())).await;
    (proxy, locks)
}

/// The first connection for renewals may be opened in the middle of a failover.
#[tokio::test]
async fn renewals_wait_for_a_primary_that_other_connections_reached() {
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let server = MariadbServer::start();
    drop(manager(&server.url()).await);
    let builder = tests::builder().lazy(true).lease(18_000 * MS);
    let locks = connected(builder, &server.url()).await;
    let one = locks.mutex("one").acquire().await.unwrap();
    let two = locks.mutex("two").acquire().await.unwrap();
    server.query("SET GLOBAL read_only = 1");
    let warned = |what: &str| {
        events
            .of(tracing::Level::WARN)
            .iter()
            .any(|text| text.contains(what))
    };
    eventually("a renewal has failed", async || warned("renewal failed")).await;
    server.query("SET GLOBAL read_only = 0");
    renewed([&one, &two]).await;
    assert!(
        !warned("cannot be renewed"),
        "{:?}",
        events.of(tracing::Level::WARN)
    );
}

/// A proxy may send a statement to a session in another time zone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_zone_of_a_session_has_no_say() {
    let table = MariadbTable::new();
    let other = manager(&table.url()).await;
    let changes = [
        ("'+00:00'", "'+09:00'"),
        ("'+00:00'", "'-09:00'"),
        // Summer time begins or ends while a statement runs.
        ("SYSDATE(6)", "(SYSDATE(6) + INTERVAL 1 HOUR)"),
        ("SYSDATE(6)", "(SYSDATE(6) - INTERVAL 1 HOUR)"),
    ];
    for (ours, theirs) in changes {
        let (proxy, locks) = behind_a_proxy(&table, move |sent| sent.replace(ours, theirs)).await;
        assert!(proxy.rewrites() > 0);
        for (holder, tries) in [(&other, &locks), (&locks, &other)] {
            let guard = holder.mutex("k").acquire().await.unwrap();
            let tried = answered(async || tries.mutex("k").try_acquire().await).await;
            assert!(
                matches!(tried, Ok(TryAcquire::Busy { .. })),
                "{theirs}: {tried:?}"
            );
            guard.release().await.unwrap();
        }
        locks.shutdown().await;
    }
    table.assert_clean().await;
}

/// A proxy may send a statement to a session that commits nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_does_not_commit_is_not_granted() {
    let table = MariadbTable::new();
    let other = manager(&table.url()).await;
    free_within(&other, "k", LONG).await;
    let without = |sent: &str| sent.replace("autocommit = 1", "autocommit = 0");
    let (proxy, locks) = behind_a_proxy(&table, without).await;
    assert!(proxy.rewrites() > 0);
    let refused = locks.mutex("k").try_acquire().await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    free_within(&other, "k", LONG).await;
}

/// Nobody knows whether the server has done what it was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_lost_its_server_leaves_the_outcome_open() {
    let table = MariadbTable::new();
    let other = manager(&table.url()).await;
    let (proxy, locks) = behind_a_proxy(&table, str::to_owned).await;
    let lose = |statement: &'static str| {
        let is_about = move |words: &[&[u8]]| {
            String::from_utf8_lossy(words.concat().as_slice()).contains(statement)
        };
        proxy.lose_reply_to(is_about, Then::Lost);
    };
    assert!(other.latch("l").try_set_count(2).await.unwrap());
    lose("GREATEST(permits - 1, 0)");
    let unknown = locks.latch("l").count_down().await;
    assert!(proxy.trap_sprung());
    assert!(
        matches!(unknown, Err(LockError::Unavailable { .. })),
        "{unknown:?}"
    );
    assert_eq!(other.latch("l").count().await.unwrap(), 1);
    // The release was done, and its repeat finds nothing.
    let guard = locks.mutex("k").acquire().await.unwrap();
    lose("LAST_INSERT_ID(polled_until");
    guard.release().await.unwrap();
    assert!(proxy.trap_sprung());
    free_within(&other, "k", LONG).await;
    other.latch("l").delete().await.unwrap();
    end(table, locks, other).await;
}
