//! Tests of logins that change: a provider is asked for one whenever a connection is opened, and before it expires.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{Credentials, LockError, LockManager, Login, LoginFuture};
use tests::eventually::PATIENCE;
use tests::{CommandStats, RedisCluster, RedisServer, SentinelGroup, eventually};
use tokio::time::timeout;

const MS: Duration = Duration::from_millis(1);
const RULES: &str = "~* &* +@all";

/// Credentials with the password that is valid now, which count how often it was asked for.
#[derive(Clone)]
pub(crate) struct Tokens {
    user: Option<&'static str>,
    now: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    valid_for: Option<Duration>,
}

impl Tokens {
    pub(crate) fn of(user: Option<&'static str>, password: &str) -> Tokens {
        Tokens {
            user,
            now: Arc::new(Mutex::new(password.to_owned())),
            asked: Arc::default(),
            valid_for: None,
        }
    }

    pub(crate) fn valid_for(mut self, time: Duration) -> Tokens {
        self.valid_for = Some(time);
        self
    }

    pub(crate) fn rotate(&self, password: &str) {
        *self.now.lock().unwrap() = password.to_owned();
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Credentials for Tokens {
    fn login(&self) -> LoginFuture<'_> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.asked.fetch_add(1, Ordering::SeqCst);
            let password = self.now.lock().unwrap().clone();
            let login = match self.user {
                Some(user) => Login::new(user, password),
                None => Login::password(password),
            };
            Ok(match self.valid_for {
                Some(time) => login.valid_for(time),
                None => login,
            })
        })
    }
}

async fn take_a_lock(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.mutex("k").acquire().await?;
    guard.release().await
}

/// Returns the ids and users of the clients that are not the test's own.
fn clients(server: &RedisServer) -> Vec<(String, String)> {
    let field = |line: &str, name: &str| {
        let mut words = line.split(' ');
        let value = words.find_map(|word| word.strip_prefix(name)).unwrap_or("");
        value.to_owned()
    };
    let mut found: Vec<_> = server
        .clients()
        .iter()
        .map(|line| (field(line, "id="), field(line, "user=")))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn every_connection_logs_in_with_the_current_credentials() {
    let server = RedisServer::builder()
        .user("locks", &format!("on >first {RULES}"))
        .start();
    let tokens = Tokens::of(Some("locks"), "first");
    let locks = tests::builder()
        .credentials(tokens.clone())
        .connect(&server.url())
        .await
        .unwrap();
    take_a_lock(&locks).await.unwrap();
    assert_eq!(tokens.asked(), 2, "for commands and for messages");
    let users: Vec<_> = clients(&server).into_iter().map(|(_, user)| user).collect();
    assert_eq!(users, ["locks", "locks"]);

    let _: redis::Value = server.query(&["ACL", "SETUSER", "locks", "<first", ">second"]);
    tokens.rotate("second");
    server.cut_clients();
    take_a_lock(&locks).await.unwrap();
    eventually("both connections are there again", async || {
        clients(&server).len() == 2
    })
    .await;
    assert!(tokens.asked() >= 4);
}

#[tokio::test]
async fn an_open_connection_stays_and_renews_its_login_in_time() {
    let server = RedisServer::builder()
        .user("locks", &format!("on >first {RULES}"))
        .start();
    let tokens = Tokens::of(Some("locks"), "first").valid_for(1_000 * MS);
    let locks = tests::builder()
        .credentials(tokens.clone())
        .connect(&server.url())
        .await
        .unwrap();
    let guard = locks.mutex("held").acquire().await.unwrap();
    eventually("it listens", async || clients(&server).len() == 2).await;
    let before = clients(&server);
    let stats = CommandStats::of(&server);
    let _: redis::Value = server.query(&["ACL", "SETUSER", "locks", "<first", ">second"]);
    tokens.rotate("second");
    eventually("both connections log in twice more", async || {
        CommandStats::of(&server).since(&stats).calls("auth") >= 4
    })
    .await;
    assert_eq!(clients(&server), before, "no connection was opened anew");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    drop(locks);
    // The code that logs in again has the connection, too, and lets go of it.
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_failed_login_renewal_keeps_the_connection_and_is_retried() {
    let server = RedisServer::builder()
        .user("locks", &format!("on >first {RULES}"))
        .start();
    let tokens = Tokens::of(Some("locks"), "first").valid_for(1_000 * MS);
    let locks = tests::builder()
        .credentials(tokens.clone())
        .connect(&server.url())
        .await
        .unwrap();
    let before = clients(&server);
    tokens.rotate("wrong");
    let asked = tokens.asked();
    eventually("it is tried again", async || tokens.asked() >= asked + 4).await;
    take_a_lock(&locks).await.unwrap();
    assert_eq!(clients(&server), before);
    let stats = CommandStats::of(&server);
    tokens.rotate("first");
    let asked = tokens.asked();
    eventually("it is renewed", async || {
        tokens.asked() >= asked + 2 && CommandStats::of(&server).since(&stats).calls("auth") >= 2
    })
    .await;
}

#[tokio::test]
async fn credentials_without_a_login_fail_in_time_and_can_be_retried() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let url = server.url().replace(":hunter2@", "");
    let connect = |builder: lock_runtime::LockManagerBuilder| {
        let url = url.clone();
        async move {
            let connecting = timeout(PATIENCE, builder.connect(&url)).await;
            let error = connecting.expect("an answer").unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            assert!(error.is_retryable());
            error.to_string()
        }
    };
    let failing = async || Err::<Login, _>(std::io::Error::other("the token service is away"));
    let said = connect(tests::builder().credentials(failing)).await;
    assert!(said.contains("the token service is away"), "{said}");

    let hanging = || std::future::pending::<Result<Login, std::io::Error>>();
    let builder = tests::builder().call_timeout(200 * MS);
    let said = connect(builder.credentials(hanging)).await;
    assert!(said.contains("within 200ms"), "{said}");

    let panicking = async || -> Result<Login, std::io::Error> { panic!("planned") };
    let said = connect(tests::builder().credentials(panicking)).await;
    assert!(said.contains("panicked"), "{said}");
}

#[tokio::test]
async fn credentials_that_panic_once_do_not_end_connections_for_good() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let url = server.url().replace(":hunter2@", "");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let credentials = move || {
        let turn = count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(turn != 2, "planned");
            Ok::<_, std::io::Error>(Login::password("hunter2"))
        }
    };
    let locks = tests::builder()
        .credentials(credentials)
        .connect(&url)
        .await
        .unwrap();
    server.cut_clients();
    take_a_lock(&locks).await.unwrap();
    eventually("both are asked for again", async || {
        asked.load(Ordering::SeqCst) >= 5 && clients(&server).len() == 2
    })
    .await;
}

#[tokio::test]
async fn a_refused_login_is_denied_without_its_password() {
    let server = RedisServer::builder().requirepass("correct").start();
    let url = server.url().replace(":correct@", "");
    let tokens = Tokens::of(None, "hunter2");
    let refused = tests::builder().credentials(tokens).connect(&url);
    let error = refused.await.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[tokio::test]
async fn credentials_beside_a_login_in_the_url_are_refused_without_io() {
    for url in [
        "redis://user:hunter2@nowhere.invalid/",
        "redis://:hunter2@nowhere.invalid/",
        "redis-sentinel://:hunter2@nowhere.invalid/service",
        "redis-cluster://:hunter2@nowhere.invalid",
        "memory://",
    ] {
        let tokens = Tokens::of(None, "hunter2");
        match tests::builder().credentials(tokens).connect(url).await {
            Err(LockError::InvalidConfig { why, .. }) => {
                assert!(why.contains("`credentials`") && !why.contains("hunter2"));
            }
            other => panic!("{url}: {other:?}"),
        }
    }
    let tokens = Tokens::of(None, "hunter2");
    let memory = tests::builder().credentials(tokens).in_memory();
    assert!(matches!(memory, Err(LockError::InvalidConfig { .. })));
}

#[tokio::test]
async fn credentials_log_in_to_the_master_and_not_to_its_sentinels() {
    let group = SentinelGroup::builder(1, 1)
        .requirepass("hunter2")
        .sentinel_password("another")
        .steady()
        .start()
        .await;
    let tokens = Tokens::of(None, "hunter2");
    let url = group.url_with("", "?sentinel_pass=another");
    let locks = tests::builder()
        .credentials(tokens.clone())
        .connect(&url)
        .await
        .unwrap();
    take_a_lock(&locks).await.unwrap();
    let asked = tokens.asked();
    assert_eq!(asked, 2, "for the master alone");
    let new = group.failover().await;
    eventually("the new master is logged in to", async || {
        tokens.asked() >= asked + 2 && group.servers[new].clients().len() == 2
    })
    .await;
    let request = locks.mutex("k").wait(PATIENCE);
    request.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn each_node_of_a_cluster_is_logged_in_to() {
    let cluster = RedisCluster::builder().requirepass("hunter2").start().await;
    let tokens = Tokens::of(None, "hunter2").valid_for(1_000 * MS);
    let url = cluster.url().replace(":hunter2@", "");
    let locks = tests::builder()
        .credentials(tokens.clone())
        .connect(&url)
        .await
        .unwrap();
    for node in 0..3 {
        let key = cluster.key_at(node, "lock:k");
        let request = locks.mutex(&key["lock:".len()..]);
        request.acquire().await.unwrap().release().await.unwrap();
    }
    let before = tokens.asked();
    assert!(
        before >= 4,
        "three for commands, one for messages: {before}"
    );
    eventually("they log in again", async || tokens.asked() >= before + 4).await;
    drop(locks);
    for node in &cluster.nodes {
        node.assert_deserted().await;
    }
}

#[tokio::test]
async fn nodes_of_a_quorum_and_confirmations_by_replicas_log_in_too() {
    let servers = [(); 3].map(|()| RedisServer::builder().requirepass("hunter2").start());
    let urls = servers
        .each_ref()
        .map(|server| server.url().replace(":hunter2@", ""));
    // A node has a tenth of it to answer.
    let lease = Duration::from_secs(20);
    for server in &servers {
        tests::quorum::wait_until_older(server, lease).await;
    }
    let tokens = Tokens::of(None, "hunter2");
    let locks = tests::builder()
        .lease(lease)
        .longest_lease(lease)
        .credentials(tokens.clone())
        .quorum(&urls)
        .await
        .unwrap();
    take_a_lock(&locks).await.unwrap();
    assert!(tokens.asked() >= 4, "two for each of a majority at least");

    let group = SentinelGroup::builder(1, 1)
        .steady()
        .requirepass("hunter2")
        .start()
        .await;
    let locks = tests::builder()
        .replicas(lock_runtime::Replicas::at_least(1))
        .credentials(Tokens::of(None, "hunter2").valid_for(1_000 * MS))
        .connect(&group.url())
        .await
        .unwrap();
    take_a_lock(&locks).await.unwrap();
    drop(locks);
    eventually("no connection is left", async || {
        group
            .servers
            .iter()
            .all(|server| server.clients().is_empty())
    })
    .await;
}
