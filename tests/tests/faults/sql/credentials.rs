//! Tests of logins that change: each connection asks for one, and another connection replaces it in time.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LockManagerBuilder, Login};
use tests::faults::connected;
use tests::{
    Mariadb, MariadbServer, Postgres, PostgresServer, Server, Sql, answered, eventually,
    eventually_within,
};

use super::{LEASE, LONG};
use crate::credentials::Tokens;

tests::on_each_database! {
    every_connection_logs_in_with_the_current_credentials
    the_user_of_the_url_is_that_of_a_login_without_one
    connections_are_replaced_unnoticed_before_a_login_expires
    a_failed_login_renewal_keeps_the_connection_and_is_retried
    a_wrong_login_is_refused_with_advice_and_without_a_password
}

const MS: Duration = Duration::from_millis(1);

/// A database whose user `locks` has a password that changes.
trait Rotating: Sql {
    const SCHEME: &'static str;
    /// True if a manager has a connection for notifications.
    const LISTENS: bool;
    /// The statement that returns the server's numbers of this user's connections.
    const CONNECTIONS: &'static str;

    /// Starts a server with this user, who has no password yet.
    fn server() -> Server<Self>;

    fn set_password(server: &Server<Self>, password: &str);

    fn url_without_login(server: &Server<Self>) -> String;
}

impl Rotating for Postgres {
    const SCHEME: &'static str = "postgres";
    const LISTENS: bool = true;
    const CONNECTIONS: &'static str = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rotating' AND usename = 'locks'";

    /// Starts a server that takes the password in the clear: SCRAM takes a tenth of a second of a core in a build for
    /// tests, for each connection.
    fn server() -> PostgresServer {
        let server = PostgresServer::ruled(&["host all locks all password"]);
        server.query("CREATE ROLE locks LOGIN SUPERUSER");
        server
    }

    fn set_password(server: &PostgresServer, password: &str) {
        server.query(&format!("ALTER ROLE locks PASSWORD '{password}'"));
    }

    fn url_without_login(server: &PostgresServer) -> String {
        let port = server.port();
        format!("postgres://127.0.0.1:{port}/postgres?application_name=rotating&lock_pool=4")
    }
}

impl Rotating for Mariadb {
    const SCHEME: &'static str = "mysql";
    const LISTENS: bool = false;
    const CONNECTIONS: &'static str =
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'locks'";

    fn server() -> MariadbServer {
        let server = MariadbServer::start();
        server.query("CREATE USER locks@'%'; GRANT ALL ON *.* TO locks@'%'");
        server
    }

    fn set_password(server: &MariadbServer, password: &str) {
        server.query(&format!("ALTER USER locks@'%' IDENTIFIED BY '{password}'"));
    }

    fn url_without_login(server: &MariadbServer) -> String {
        format!("mysql://127.0.0.1:{}/locks?lock_pool=4", server.port())
    }
}

fn server<D: Rotating>(password: &str) -> Server<D> {
    let server = D::server();
    D::set_password(&server, password);
    server
}

fn builder(tokens: &Tokens) -> LockManagerBuilder {
    let builder = tests::builder().credentials(tokens.clone());
    builder.ensure_schema(true)
}

async fn take_a_lock(locks: &LockManager) -> Result<(), LockError> {
    locks.mutex("k").acquire().await?.release().await
}

async fn every_connection_logs_in_with_the_current_credentials<D: Rotating>() {
    let server = server::<D>("first");
    let tokens = Tokens::of(Some("locks"), "first");
    let locks = connected(builder(&tokens), &D::url_without_login(&server)).await;
    take_a_lock(&locks).await.unwrap();
    assert!(
        tokens.asked() >= 3,
        "for the table, for statements, and for renewals or notifications"
    );
    D::set_password(&server, "second");
    tokens.rotate("second");
    <D as Sql>::end_connections(&server, &server.query(<D as Rotating>::CONNECTIONS));
    eventually("locks can be had again", async || {
        take_a_lock(&locks).await.is_ok()
    })
    .await;
    if D::LISTENS {
        eventually("it listens again, too", async || {
            server.query(<D as Rotating>::CONNECTIONS).len() >= 2
        })
        .await;
    }
}

async fn the_user_of_the_url_is_that_of_a_login_without_one<D: Rotating>() {
    let server = server::<D>("first");
    let url = D::url_without_login(&server).replace("://", "://locks@");
    let locks = connected(builder(&Tokens::of(None, "first")), &url).await;
    take_a_lock(&locks).await.unwrap();
    assert!(!server.query(<D as Rotating>::CONNECTIONS).is_empty());
}

async fn connections_are_replaced_unnoticed_before_a_login_expires<D: Rotating>() {
    let server = server::<D>("first");
    let tokens = Tokens::of(Some("locks"), "first").valid_for(2_000 * MS);
    let patient = builder(&tokens).call_timeout(LONG);
    let locks = connected(patient, &D::url_without_login(&server)).await;
    let guard = locks.mutex("held").lease(LEASE);
    let guard = guard.acquire().await.unwrap();
    D::set_password(&server, "second");
    tokens.rotate("second");
    let (mut seen, mut rounds) = (server.query(<D as Rotating>::CONNECTIONS), 0);
    // The hold is renewed meanwhile.
    let until = Instant::now() + LEASE / 2;
    while Instant::now() < until || rounds < 2 {
        assert!(
            Instant::now() < until + 10 * LONG,
            "replaced {rounds} times"
        );
        let mut busy = tokio::task::JoinSet::new();
        for n in 0..8 {
            let locks = locks.clone();
            busy.spawn(async move {
                let guard = locks.mutex(format!("busy-{n}")).acquire().await?;
                guard.release().await
            });
        }
        while let Some(done) = busy.join_next().await {
            done.unwrap().unwrap();
        }
        assert!(guard.is_held());
        let now = server.query(<D as Rotating>::CONNECTIONS);
        assert!(now.len() <= 2 * (4 + 2 + 1), "{now:?}");
        if !now.iter().any(|pid| seen.contains(pid)) {
            (seen, rounds) = (now, rounds + 1);
        }
    }
    // The connection that listens is among them, where there is one.
    let waiter = tokio::spawn(locks.mutex("held").wait(4 * LONG).acquire());
    eventually("the waiter waits", async || {
        locks.inspect("held").await.unwrap().local_waiters == 1
    })
    .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    locks.shutdown().await;
    drop(locks);
    eventually("every connection is closed", async || {
        server.query(<D as Rotating>::CONNECTIONS).is_empty()
    })
    .await;
}

async fn a_failed_login_renewal_keeps_the_connection_and_is_retried<D: Rotating>() {
    let server = server::<D>("first");
    let tokens = Tokens::of(Some("locks"), "first").valid_for(1_000 * MS);
    let locks = connected(builder(&tokens), &D::url_without_login(&server)).await;
    take_a_lock(&locks).await.unwrap();
    tokens.rotate("wrong");
    let asked = tokens.asked();
    eventually("it is tried again", async || tokens.asked() >= asked + 4).await;
    let before = server.query(<D as Rotating>::CONNECTIONS);
    take_a_lock(&locks).await.unwrap();
    // One that had another in its place may have ended.
    let after = server.query(<D as Rotating>::CONNECTIONS);
    let are_kept = after.iter().all(|pid| before.contains(pid)) && !after.is_empty();
    assert!(are_kept, "{after:?} of {before:?}");
    tokens.rotate("first");
    eventually("every connection is another one", async || {
        let now = server.query(<D as Rotating>::CONNECTIONS);
        now.len() >= 2 && !now.iter().any(|pid| before.contains(pid))
    })
    .await;
    take_a_lock(&locks).await.unwrap();
}

async fn a_wrong_login_is_refused_with_advice_and_without_a_password<D: Rotating>() {
    let server = server::<D>("correct");
    let url = D::url_without_login(&server);
    let wrong = builder(&Tokens::of(Some("locks"), "hunter2"));
    let refused = answered(async || wrong.clone().connect(&url).await).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");

    let failing = async || Err::<Login, _>(std::io::Error::other("the token service is away"));
    let failing = tests::builder().credentials(failing);
    eventually("the refusal says why", async || {
        let error = failing.clone().connect(&url).await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        error.to_string().contains("the token service is away")
    })
    .await;

    let tokens = Tokens::of(None, "hunter2");
    let both = format!("{}://locks:hunter2@nowhere.invalid/db", D::SCHEME);
    match builder(&tokens).connect(&both).await {
        Err(LockError::InvalidConfig { why, .. }) => {
            assert!(
                why.contains("`credentials`") && !why.contains("hunter2"),
                "{why}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(tokens.asked(), 0);
}

#[tokio::test]
async fn a_waiter_on_postgres_is_told_while_connections_are_replaced() {
    let server = server::<Postgres>("first");
    let tokens = || Tokens::of(Some("locks"), "first").valid_for(1_000 * MS);
    let (holders, waiters) = (tokens(), tokens());
    let connect = async |tokens| {
        // Nobody asks again by itself.
        let builder = builder(tokens).longest_nap(Duration::from_secs(3_600));
        let url = Postgres::url_without_login(&server);
        connected(builder, &url).await
    };
    let (locks, other) = (connect(&holders).await, connect(&waiters).await);
    // A connection that is opened looks for what may have been missed. Some releases are told without that.
    let mut told = 0;
    let is_told = async || {
        let guard = locks.mutex("k").acquire().await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait(4 * LONG).acquire());
        eventually("the waiter waits", async || {
            other.inspect("k").await.unwrap().local_waiters == 1
        })
        .await;
        // The release comes somewhere between two replacements.
        tokio::time::sleep(fastrand::u32(200..700) * MS).await;
        let asked = waiters.asked();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        told += usize::from(waiters.asked() == asked);
        next.release().await.unwrap();
        told == 8
    };
    eventually_within(Duration::from_secs(600), "eight are told", is_told).await;
}

#[tokio::test]
async fn a_password_that_is_missing_on_postgres_says_so() {
    let server = server::<Postgres>("correct");
    let without = Postgres::url_without_login(&server).replace("://", "://locks@");
    match answered(async || LockManager::connect(&without).await).await {
        Err(LockError::InvalidConfig { why, .. }) => {
            assert!(why.contains("password missing"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}
