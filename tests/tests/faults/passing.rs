//! Tests of refusals that pass: somebody makes a user anew, takes a right away and gives it back, or renames a table.
//! Waits of every kind outlive the refusal. A request that does not wait fails at once. A wait that ends during the refusal
//! names it in its error.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager};
use redis::Value;
use tests::faults::free_within;
use tests::{Events, Mariadb, Postgres, RedisServer, Sql, Table, eventually, eventually_within};
use tokio::task::JoinSet;
use tracing::Level;

use crate::sql::manager;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(180);

/// The names that [`waiters`] wait for, and how many kinds of requests these are, the observer's among them.
const NAMES: usize = 10;
const KINDS: usize = 8;

/// What keeps the waiters waiting.
struct Taken {
    other: LockManager,
    guards: Vec<LockGuard>,
}

impl Taken {
    async fn by(other: LockManager) -> Taken {
        assert!(other.semaphore("permits").try_set_permits(1).await.unwrap());
        other
            .plain_semaphore("plain")
            .try_set_permits(0)
            .await
            .unwrap();
        other.latch("latch").try_set_count(1).await.unwrap();
        let requests = [
            other.mutex("mutex"),
            other.mutex("of-two"),
            other.fenced("fenced"),
            other.fair("fair"),
            other.read("write"),
            other.write("read"),
            other.semaphore("permits").permits(1),
        ];
        let mut guards = Vec::new();
        for request in requests {
            guards.push(request.acquire().await.unwrap());
        }
        let leader = other.mutex("election").acquire().await.unwrap();
        guards.push(leader);
        Taken { other, guards }
    }

    async fn give_back(self) {
        for guard in self.guards {
            guard.release().await.unwrap();
        }
        self.other
            .plain_semaphore("plain")
            .release(1)
            .await
            .unwrap();
        self.other.latch("latch").count_down().await.unwrap();
    }
}

/// Begins one wait of each kind.
fn waiters(locks: &LockManager) -> JoinSet<Result<(), LockError>> {
    let mut waiting = JoinSet::new();
    let requests = [
        locks.mutex("mutex"),
        locks.fenced("fenced"),
        locks.fair("fair"),
        locks.read("read"),
        locks.write("write"),
        locks.semaphore("permits").permits(1),
    ];
    for request in requests {
        waiting.spawn(async move { request.wait(LONG).acquire().await?.release().await });
    }
    let set = locks
        .multi([locks.mutex("of-two"), locks.mutex("of-two-and-free")])
        .wait(LONG);
    waiting.spawn(async move { set.acquire().await?.release().await });
    let plain = locks.plain_semaphore("plain");
    waiting.spawn(async move {
        loop {
            match plain.permits(1).wait(LONG).acquire().await {
                // A cut met the question, which nobody may ask twice.
                Err(LockError::Unavailable { source, .. })
                    if source.to_string().starts_with("unknown whether") => {}
                answer => return answer,
            }
        }
    });
    let latch = locks.latch("latch").opened().wait(LONG);
    waiting.spawn(async move { latch.await });
    let candidate = locks.elect("election");
    waiting.spawn(async move { candidate.lead(async |_| ()).await });
    waiting
}

/// Lets everybody wait, has the store refuse them, and then serve them again.
async fn waits_outlive(
    locks: LockManager,
    other: LockManager,
    refuse: impl AsyncFnOnce(),
    is_told: impl Fn(&LockError) -> bool,
    allow: impl AsyncFnOnce(),
) {
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let refusals = || {
        let warnings = events.of(Level::WARN).into_iter();
        let refusals = warnings.filter(|said| said.contains("refuses what it served before"));
        refusals.collect::<Vec<_>>()
    };
    let taken = Taken::by(other).await;
    let long_held = async || locks.mutex("given-back").lease(2 * LONG).acquire().await;
    long_held().await.unwrap().release().await.unwrap();
    let given_back = long_held().await.unwrap();
    let mut waiting = waiters(&locks);
    let mut observer = locks.elect("election").observe();
    let leader = observer.changed().await.unwrap().expect("a leader");
    let leads = taken.other.id();
    assert_eq!(leader.manager_id(), leads);
    let observing = tokio::spawn(async move {
        loop {
            match observer.changed().await {
                // A cut met its question, of which it tells. It then tells who leads, as at the beginning.
                Err(LockError::Unavailable { .. }) => {}
                Ok(Some(leader)) if leader.manager_id() == leads => {}
                answer => return answer,
            }
        }
    });
    eventually("all of them wait", async || {
        let fair = taken.other.inspect("fair").await.unwrap();
        locks.snapshot().waited_for.len() == NAMES && fair.waiters > 0
    })
    .await;

    refuse().await;
    let mut shown = 0;
    eventually("each kind is refused", async || {
        if let Some(ended) = waiting.try_join_next() {
            panic!("a wait has ended: {ended:?}");
        }
        let logged = refusals();
        for refusal in logged.iter().skip(shown) {
            eprintln!("{refusal}");
        }
        shown = logged.len();
        shown >= KINDS
    })
    .await;
    // A connection that has just been ended says so first.
    eventually("who does not wait is told", async || {
        let refused = locks.mutex("free").try_acquire().await;
        refused.is_err_and(|error| is_told(&error))
    })
    .await;
    // A release outlives it, too, and keeps no caller of its name from hearing of it.
    drop(given_back);
    eventually(
        "who asks for what is being given back is told",
        async || {
            let refused = locks.mutex("given-back").try_acquire().await;
            refused.is_err_and(|error| is_told(&error))
        },
    )
    .await;
    for request in [locks.mutex("mutex"), locks.fair("fair")] {
        let mut wait = 500 * MS;
        eventually_within(LONG, "who waits in vain is told", async || {
            // On a busy machine, a short wait ends before the refusal comes.
            wait *= 2;
            let refused = request.clone().wait(wait).acquire().await;
            refused.is_err_and(|error| is_told(&error))
        })
        .await;
    }
    // An answer that was on its way may be a success between two refusals. A wait logs one refusal, all the same.
    let logged = refusals();
    assert!(logged.len() <= 2 * NAMES, "{logged:#?}");
    if let Some(ended) = waiting.try_join_next() {
        panic!("a wait has ended: {ended:?}");
    }
    assert!(!observing.is_finished(), "the observer goes on");

    allow().await;
    let free = taken.other.mutex("given-back").wait(LONG);
    free.acquire().await.unwrap().release().await.unwrap();
    taken.give_back().await;
    while let Some(served) = waiting.join_next().await {
        served.unwrap().unwrap();
    }
    let seen = observing.await.unwrap().unwrap();
    assert!(seen.is_none_or(|leader| leader.manager_id() == locks.id()));
}

fn is_denied(error: &LockError) -> bool {
    matches!(error, LockError::Denied { .. })
}

const RIGHTS: [&str; 4] = ["on", ">secret", "~*", "&*"];

fn set_user(server: &RedisServer, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", "app"], rules].concat();
    let _: Value = server.query(&command);
}

fn with_all_rights(server: &RedisServer) {
    set_user(server, &[RIGHTS.as_slice(), &["+@all"]].concat());
}

async fn on_redis() -> (RedisServer, LockManager, LockManager) {
    let server = RedisServer::start();
    with_all_rights(&server);
    let url = server.url_with("app", "secret");
    let locks = tests::connected(&url).await;
    let other = tests::connected(&server.url()).await;
    (server, locks, other)
}

#[tokio::test]
async fn a_right_that_is_away_for_a_while_ends_no_wait_on_redis() {
    let (server, locks, other) = on_redis().await;
    let refuse = async || set_user(&server, &["-@scripting"]);
    let names_the_right =
        |error: &LockError| is_denied(error) && error.to_string().contains("+eval");
    let allow = async || with_all_rights(&server);
    waits_outlive(locks, other, refuse, names_the_right, allow).await;
}

#[tokio::test]
async fn a_user_that_is_made_anew_ends_no_wait_on_redis() {
    let (server, locks, other) = on_redis().await;
    let refuse = async || {
        let _: Value = server.query(&["ACL", "DELUSER", "app"]);
    };
    let allow = async || with_all_rights(&server);
    waits_outlive(locks, other, refuse, is_denied, allow).await;
}

/// A database with a user who has the rights that the documentation asks for.
trait Rights: Sql {
    /// The statements that make the user, and those that take the user's rights away and give them back.
    const USER: &'static str;
    const TAKE: &'static str;
    const GIVE: &'static str;
    /// The statements that keep the user from logging in, and that admit the user again.
    const KEEP_OUT: &'static str;
    const ADMIT: &'static str;
    /// The query for the ids of the user's connections.
    const OF_APP: &'static str;

    /// Returns the URL by which the user connects.
    fn url_of_app(table: &Table<Self>) -> String;

    async fn say(table: &Table<Self>, statements: &str) -> Vec<String> {
        let statements = statements.replace("{table}", table.name());
        table.server().ask(&statements).await
    }
}

impl Rights for Postgres {
    const USER: &'static str = "CREATE ROLE app_{table} LOGIN";
    const TAKE: &'static str = "REVOKE ALL ON {table} FROM app_{table}";
    const GIVE: &'static str = "GRANT SELECT, INSERT, UPDATE ON {table} TO app_{table}; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON {table}_managers TO app_{table}";
    const KEEP_OUT: &'static str = "ALTER ROLE app_{table} NOLOGIN";
    const ADMIT: &'static str = "ALTER ROLE app_{table} LOGIN";
    const OF_APP: &'static str = "SELECT pid FROM pg_stat_activity WHERE usename = 'app_{table}'";

    fn url_of_app(table: &Table<Postgres>) -> String {
        table
            .url()
            .replace("lock@", &format!("app_{}@", table.name()))
    }
}

impl Rights for Mariadb {
    const USER: &'static str = "CREATE USER app_{table}@'%'";
    const TAKE: &'static str = "REVOKE ALL PRIVILEGES ON locks.{table} FROM app_{table}@'%'";
    const GIVE: &'static str = "GRANT SELECT, INSERT, UPDATE ON locks.{table} TO app_{table}@'%'; \
        GRANT SELECT, INSERT, DELETE ON locks.{table}_forced TO app_{table}@'%'; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON locks.{table}_managers TO app_{table}@'%'";
    const KEEP_OUT: &'static str = "RENAME USER app_{table}@'%' TO away_{table}@'%'";
    const ADMIT: &'static str = "RENAME USER away_{table}@'%' TO app_{table}@'%'";
    const OF_APP: &'static str =
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app_{table}'";

    fn url_of_app(table: &Table<Mariadb>) -> String {
        let own = format!("{}@", table.name());
        table.url().replace(&own, &format!("app_{own}"))
    }
}

async fn on_database<D: Rights>() -> (Table<D>, LockManager, LockManager) {
    let table = Table::<D>::new();
    let other = manager(&table.url()).await;
    D::say(&table, D::USER).await;
    D::say(&table, D::GIVE).await;
    let locks = tests::connected(&D::url_of_app(&table)).await;
    (table, locks, other)
}

async fn a_right_that_is_away<D: Rights>() {
    let (table, locks, other) = on_database::<D>().await;
    let refuse = async || drop(D::say(&table, D::TAKE).await);
    let allow = async || drop(D::say(&table, D::GIVE).await);
    waits_outlive(locks, other, refuse, is_denied, allow).await;
    table.assert_deserted().await;
}

async fn a_user_that_is_kept_out<D: Rights>() {
    let (table, locks, other) = on_database::<D>().await;
    let refuse = async || {
        D::say(&table, D::KEEP_OUT).await;
        let connections = D::say(&table, D::OF_APP).await;
        D::end_connections(table.server(), &connections);
    };
    let allow = async || drop(D::say(&table, D::ADMIT).await);
    waits_outlive(locks, other, refuse, is_denied, allow).await;
    table.assert_deserted().await;
}

async fn a_table_that_is_renamed<D: Rights>() {
    let (table, locks, other) = on_database::<D>().await;
    let refuse = async || drop(D::say(&table, "ALTER TABLE {table} RENAME TO {table}_away").await);
    let is_told = |error: &LockError| {
        let said = error.to_string();
        matches!(error, LockError::Unavailable { .. }) && said.contains("table of the locks")
    };
    let allow = async || {
        drop(D::say(&table, "ALTER TABLE {table}_away RENAME TO {table}").await);
    };
    waits_outlive(locks, other, refuse, is_told, allow).await;
    table.assert_deserted().await;
}

async fn a_table_that_is_missing_while_connections_end<D: Rights>() {
    let (table, locks, other) = on_database::<D>().await;
    // It would tell of its own connections.
    drop(other);
    free_within(&locks, "k", LONG).await;
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    D::say(&table, "ALTER TABLE {table} RENAME TO {table}_away").await;
    let connections = D::say(&table, D::OF_APP).await;
    D::end_connections(table.server(), &connections);
    let said = || {
        let warnings = events.of(Level::WARN).into_iter();
        warnings.filter(|said| said.contains("a connection to the lock store"))
    };
    eventually("the log says what is wrong", async || {
        let refused = locks.mutex("k").try_acquire().await.unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
        said().next().is_some()
    })
    .await;
    let said = said().collect::<Vec<_>>();
    // A second connection of MySQL looks for forced releases.
    assert!(said.len() <= 2, "{said:#?}");
    // The check of a new connection may find it missing, or its question for the rights.
    let is_right = |said: &String| {
        let is_named = said.contains("no table") || said.contains("doesn't exist");
        said.contains("cannot be opened") && is_named
    };
    assert!(said.iter().all(is_right), "{said:#?}");
    D::say(&table, "ALTER TABLE {table}_away RENAME TO {table}").await;
    drop(locks);
    table.assert_deserted().await;
}

macro_rules! on_each_database {
    ($($name:ident: $refusal:ident on $database:ty,)+) => {
        $(#[tokio::test]
        async fn $name() {
            $refusal::<$database>().await;
        })+
    };
}

on_each_database! {
    a_right_that_is_away_for_a_while_ends_no_wait_on_postgres: a_right_that_is_away on Postgres,
    a_right_that_is_away_for_a_while_ends_no_wait_on_mysql: a_right_that_is_away on Mariadb,
    a_user_that_is_kept_out_for_a_while_ends_no_wait_on_postgres: a_user_that_is_kept_out on Postgres,
    a_user_that_is_kept_out_for_a_while_ends_no_wait_on_mysql: a_user_that_is_kept_out on Mariadb,
    a_table_that_is_renamed_for_a_while_ends_no_wait_on_postgres: a_table_that_is_renamed on Postgres,
    a_connection_without_a_table_is_not_called_lost_on_postgres: a_table_that_is_missing_while_connections_end on Postgres,
    a_connection_without_a_table_is_not_called_lost_on_mysql: a_table_that_is_missing_while_connections_end on Mariadb,
    a_table_that_is_renamed_for_a_while_ends_no_wait_on_mysql: a_table_that_is_renamed on Mariadb,
}
