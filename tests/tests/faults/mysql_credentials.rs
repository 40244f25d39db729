//! Logins of MySQL and MariaDB that change: each connection asks for one, and another connection replaces it in time.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LockManagerBuilder, Login};
use tests::{MariadbServer, eventually};

use crate::credentials::Tokens;

const MS: Duration = Duration::from_millis(1);

fn server(password: &str) -> MariadbServer {
    let server = MariadbServer::start();
    server.query("CREATE USER locks@'%'; GRANT ALL ON *.* TO locks@'%'");
    set_password(&server, password);
    server
}

fn set_password(server: &MariadbServer, password: &str) {
    server.query(&format!("ALTER USER locks@'%' IDENTIFIED BY '{password}'"));
}

/// Without a login.
fn url(server: &MariadbServer) -> String {
    format!("mysql://127.0.0.1:{}/locks?lock_pool=4", server.port())
}

fn builder(tokens: &Tokens) -> LockManagerBuilder {
    let builder = LockManager::builder().credentials(tokens.clone());
    builder.ensure_schema(true)
}

/// The server's numbers of the test's connections.
fn connections(server: &MariadbServer) -> Vec<String> {
    server.query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'locks'")
}

async fn take_a_lock(locks: &LockManager) -> Result<(), LockError> {
    locks.mutex("k").acquire().await?.release().await
}

#[tokio::test]
async fn every_connection_logs_in_with_what_the_credentials_say_at_that_time() {
    let server = server("first");
    let tokens = Tokens::of(Some("locks"), "first");
    let locks = builder(&tokens).connect(&url(&server)).await.unwrap();
    take_a_lock(&locks).await.unwrap();
    assert!(
        tokens.asked() >= 3,
        "for the table, for statements and for renewals"
    );
    set_password(&server, "second");
    tokens.rotate("second");
    server.end_connections("locks");
    eventually("locks can be had again", async || {
        take_a_lock(&locks).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn the_user_of_the_url_is_that_of_a_login_without_one() {
    let server = server("first");
    let url = url(&server).replace("://", "://locks@");
    let locks = builder(&Tokens::of(None, "first")).connect(&url).await;
    let locks = locks.unwrap();
    take_a_lock(&locks).await.unwrap();
    assert!(!connections(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_replaced_before_their_login_expires_and_nobody_notices() {
    let server = server("first");
    let tokens = Tokens::of(Some("locks"), "first").valid_for(2_000 * MS);
    let locks = builder(&tokens).connect(&url(&server)).await.unwrap();
    let guard = locks.mutex("held").lease(3_000 * MS);
    let guard = guard.acquire().await.unwrap();
    set_password(&server, "second");
    tokens.rotate("second");
    let (mut seen, mut rounds) = (connections(&server), 0);
    let until = Instant::now() + 6_000 * MS;
    while Instant::now() < until || rounds < 2 {
        assert!(
            Instant::now() < until + 20_000 * MS,
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
        let now = connections(&server);
        assert!(now.len() <= 2 * (4 + 2 + 1), "{now:?}");
        if !now.iter().any(|pid| seen.contains(pid)) {
            (seen, rounds) = (now, rounds + 1);
        }
    }
    guard.release().await.unwrap();
    locks.shutdown().await;
    drop(locks);
    eventually("every connection is closed", async || {
        connections(&server).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_login_that_cannot_be_renewed_keeps_its_connection_and_is_tried_again() {
    let server = server("first");
    let tokens = Tokens::of(Some("locks"), "first").valid_for(1_000 * MS);
    let locks = builder(&tokens).connect(&url(&server)).await.unwrap();
    take_a_lock(&locks).await.unwrap();
    tokens.rotate("wrong");
    let asked = tokens.asked();
    eventually("it is tried again", async || tokens.asked() >= asked + 4).await;
    let before = connections(&server);
    take_a_lock(&locks).await.unwrap();
    assert_eq!(connections(&server), before);
    tokens.rotate("first");
    eventually("every connection is another one", async || {
        let now = connections(&server);
        now.len() >= 2 && !now.iter().any(|pid| before.contains(pid))
    })
    .await;
    take_a_lock(&locks).await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_with_a_login_says_what_to_do_and_shows_no_password() {
    let server = server("correct");
    let url = url(&server);
    let refused = builder(&Tokens::of(Some("locks"), "hunter2")).connect(&url);
    let error = refused.await.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");

    let failing = async || Err::<Login, _>(std::io::Error::other("the token service is away"));
    let refused = LockManager::builder().credentials(failing).connect(&url);
    let error = refused.await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("the token service is away"));

    let tokens = Tokens::of(None, "hunter2");
    let both = "mysql://locks:hunter2@nowhere.invalid/db";
    match builder(&tokens).connect(both).await {
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
