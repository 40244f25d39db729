//! Databases that fail: what was granted stays granted or is lost on time, and what nobody waits for is undone.
//!
//! Each of these runs on PostgreSQL and on MariaDB. What only one of them does is in `postgres.rs` and `mysql.rs`.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::{at_each_poll, free_within, poll_times, took};
use tests::{
    Blocker, MariadbServer, MariadbTable, Pipe, PostgresServer, PostgresTable, eventually,
    eventually_within,
};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
pub(crate) const CALL: Duration = Duration::from_millis(500);

/// A table of a server that the tests of this process share.
pub(crate) trait Database {
    /// A server of one test.
    type Server: Server;
    /// Whether a name may have a NUL character.
    const TAKES_NUL: bool;

    fn new() -> Self;
    fn url(&self) -> String;
    fn addr(&self) -> SocketAddr;
    fn name(&self) -> &str;
    fn query(&self, statement: &str) -> Vec<String>;
    fn empty(&self);
    /// A client that runs the statements that it reads.
    fn client(&self) -> Command;
    /// Ends the connections of the test's managers.
    fn end_connections(&self);
    async fn assert_clean(&self);
    async fn assert_deserted(&self);
}

pub(crate) trait Server {
    fn start() -> Self;
    fn url(&self) -> String;
    fn restart(&mut self);
    fn sigstop(&self);
    fn sigcont(&self);
}

macro_rules! server {
    ($server:ty) => {
        impl Server for $server {
            fn start() -> Self {
                <$server>::start()
            }

            fn url(&self) -> String {
                self.url()
            }

            fn restart(&mut self) {
                self.restart();
            }

            fn sigstop(&self) {
                self.sigstop();
            }

            fn sigcont(&self) {
                self.sigcont();
            }
        }
    };
}

server!(PostgresServer);
server!(MariadbServer);

macro_rules! database {
    ($table:ty, $server:ty, $nul:literal, $client:expr, $end:expr) => {
        impl Database for $table {
            type Server = $server;
            const TAKES_NUL: bool = $nul;

            fn new() -> Self {
                <$table>::new()
            }

            fn url(&self) -> String {
                self.url()
            }

            fn addr(&self) -> SocketAddr {
                self.server().addr()
            }

            fn name(&self) -> &str {
                self.name()
            }

            fn query(&self, statement: &str) -> Vec<String> {
                self.server().query(statement)
            }

            fn empty(&self) {
                self.empty();
            }

            fn client(&self) -> Command {
                $client(self)
            }

            fn end_connections(&self) {
                $end(self)
            }

            async fn assert_clean(&self) {
                self.assert_clean().await;
            }

            async fn assert_deserted(&self) {
                self.assert_deserted().await;
            }
        }
    };
}

database!(
    PostgresTable,
    PostgresServer,
    false,
    |table: &PostgresTable| table.server().client(),
    |table: &PostgresTable| {
        let end_all = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
            table.name()
        );
        table.server().query(&end_all);
    }
);

database!(
    MariadbTable,
    MariadbServer,
    true,
    |table: &MariadbTable| table.server().client(),
    |table: &MariadbTable| table.server().end_connections(table.name())
);

macro_rules! on_each_database {
    ($($behaviour:ident)+) => {
        mod on_postgres {
            on_each_database!(@ tests::PostgresTable; $($behaviour)+);
        }

        mod on_mysql {
            on_each_database!(@ tests::MariadbTable; $($behaviour)+);
        }
    };
    (@ $table:ty; $($behaviour:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $behaviour() {
            super::$behaviour::<$table>().await;
        })+
    };
}

on_each_database!(
    nobody_is_admitted_while_a_guard_says_that_it_is_held
    holds_and_waiters_outlast_a_crash_of_the_server
    a_hold_is_lost_on_time_while_the_server_is_frozen_and_the_next_token_is_higher
    connections_that_are_ended_by_the_server_end_no_hold_and_no_wait
    an_acquire_whose_answer_is_late_is_undone
    an_acquire_whose_connection_is_cut_is_undone
    a_request_that_is_dropped_at_any_poll_leaves_nothing_behind
    a_row_that_a_transaction_has_locked_holds_up_its_own_lock_alone
    a_fair_request_that_was_given_up_behind_a_locked_row_takes_no_lock_and_no_place
    names_are_compared_byte_for_byte
    a_lost_row_is_a_lost_lock
);

pub(crate) async fn manager(url: &str) -> LockManager {
    let builder = LockManager::builder()
        .call_timeout(CALL)
        .ensure_schema(true);
    builder.connect(url).await.unwrap()
}

/// Two managers on one table, the first one through a proxy.
pub(crate) async fn scene<D: Database>() -> (D, Pipe, LockManager, LockManager) {
    let table = D::new();
    let pipe = Pipe::start(table.addr()).await;
    let through = table
        .url()
        .replace(&table.addr().to_string(), &pipe.addr().to_string());
    let locks = manager(&through).await;
    let other = manager(&table.url()).await;
    (table, pipe, locks, other)
}

pub(crate) async fn end<D: Database>(table: D, locks: LockManager, other: LockManager) {
    table.assert_clean().await;
    drop((locks, other));
    table.assert_deserted().await;
}

/// A transaction of a stranger's that has locked a row.
pub(crate) fn block<D: Database>(table: &D, name: &str) -> Blocker {
    Blocker::of(&mut table.client(), table.name(), name)
}

async fn nobody_is_admitted_while_a_guard_says_that_it_is_held<D: Database>() {
    let table = D::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    let mut keys = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (locks, other) = (locks.clone(), other.clone());
        keys.spawn(async move {
            let (key, began) = (format!("k{n}"), Instant::now());
            while began.elapsed() < 6_000 * MS {
                // Renewals come late now and then: then it is lost, and must say so.
                let lease = locks.mutex(&*key).lease(1_000 * MS).wait(LONG);
                let guard = lease.acquire().await.unwrap();
                while guard.is_held() && began.elapsed() < 6_000 * MS {
                    if let Ok(TryAcquire::Acquired(next)) = other.mutex(&*key).try_acquire().await {
                        assert!(!guard.is_held(), "two holders");
                        next.release().await.unwrap();
                    }
                }
            }
        });
    }
    while let Some(done) = keys.join_next().await {
        done.unwrap();
    }
    end(table, locks, other).await;
}

async fn holds_and_waiters_outlast_a_crash_of_the_server<D: Database>() {
    let mut server = D::Server::start();
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

async fn a_hold_is_lost_on_time_while_the_server_is_frozen_and_the_next_token_is_higher<
    D: Database,
>() {
    let server = D::Server::start();
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

async fn connections_that_are_ended_by_the_server_end_no_hold_and_no_wait<D: Database>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
    for _ in 0..3 {
        table.end_connections();
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

async fn an_acquire_whose_answer_is_late_is_undone<D: Database>() {
    let (table, pipe, locks, other) = scene::<D>().await;
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

async fn an_acquire_whose_connection_is_cut_is_undone<D: Database>() {
    let (table, pipe, locks, other) = scene::<D>().await;
    free_within(&locks, "k", LONG).await;
    for _ in 0..5 {
        // A connection that was idle, or cut, is not the one that the next request has.
        eventually("the store answers", async || {
            locks.inspect("k").await.is_ok()
        })
        .await;
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").try_acquire());
        let (table, held) = (&table, "SELECT count(*) FROM");
        eventually("the server has granted it", async || {
            let held = format!("{held} {} WHERE holder IS NOT NULL", table.name());
            table.query(&held) == ["1"]
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

async fn a_request_that_is_dropped_at_any_poll_leaves_nothing_behind<D: Database>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
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

async fn a_row_that_a_transaction_has_locked_holds_up_its_own_lock_alone<D: Database>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
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
    let mut blockers = vec![block(&table, "lock:locked")];
    let others = (0..12).map(|n| block(&table, &format!("lock:blocked-{n}")));
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

async fn a_fair_request_that_was_given_up_behind_a_locked_row_takes_no_lock_and_no_place<
    D: Database,
>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    locks
        .fair("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for _ in 0..3 {
        let blocker = block(&table, "lock:k");
        let refused = locks.fair("k").wait(700 * MS).acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        blocker.commit();
        let next = other.fair("k").wait(4_000 * MS).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    end(table, locks, other).await;
}

async fn names_are_compared_byte_for_byte<D: Database>() {
    let table = D::new();
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
    let with_nul = locks.mutex("a\0b").acquire().await;
    match with_nul {
        Ok(guard) if D::TAKES_NUL => guards.push(guard),
        Err(LockError::InvalidName { .. }) if !D::TAKES_NUL => {}
        other => panic!("{other:?}"),
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    drop(locks);
    table.assert_deserted().await;
}

async fn a_lost_row_is_a_lost_lock<D: Database>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
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
