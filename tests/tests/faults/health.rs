//! Tests of what `LockManager::health` reports of servers that are away, silent, or only partly there.

use std::time::{Duration, SystemTime};

use lock_runtime::{Health, HealthState, LockError, LockManager, StoreKind};
use redis::Value;
use tests::faults::{connected, took};
use tests::{Data, Quorum, RedisCluster, RedisServer, answered, eventually};
use tokio::time::timeout;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// A moment is told by the wall clock as the distance from now, so it moves a little from one report to the next: by as
/// long as the machine takes from one clock to the other.
const SKEW: Duration = Duration::from_secs(2);

async fn manager(url: &str) -> LockManager {
    // It is longer than any answer takes that comes.
    let builder = tests::builder().call_timeout(2 * LONG);
    connected(builder, url).await
}

/// Waits until this state is reported, and returns that report.
async fn once(locks: &LockManager, state: HealthState) -> Health {
    let mut health = None;
    eventually("the state is noticed", async || {
        let told = locks.health().await;
        let is_so = told.state == state;
        health = Some(told);
        is_so
    })
    .await;
    health.expect("a state")
}

#[tokio::test]
async fn an_outage_is_told_at_once_with_its_beginning_and_its_end() {
    let mut server = RedisServer::builder().requirepass("hunter2").start();
    let locks = manager(&server.url_with("default", "hunter2")).await;
    let up = locks.health().await;
    assert!(up.is_ok(), "{up:?}");
    let before = SystemTime::now();
    server.kill9();
    // Others notice it, and nobody asks for the health meanwhile.
    let noticed = locks.mutex("k").wait(1_000 * MS).acquire().await;
    assert!(
        matches!(noticed, Err(LockError::Unavailable { .. })),
        "{noticed:?}"
    );
    let noticed = SystemTime::now();
    tokio::time::sleep(SKEW * 2).await;
    // A connection that is down is not waited for.
    let down = timeout(LONG, locks.health()).await.expect("an answer");
    assert_eq!(down.state, HealthState::Down);
    assert!(down.since + SKEW > before && down.since < noticed + SKEW);
    let later = locks.health().await;
    assert_eq!(later.state, HealthState::Down);
    assert!(later.since < noticed + SKEW, "{down:?} {later:?}");
    let error = later.error.as_ref().unwrap();
    assert!(error.contains(&server.port().to_string()), "{error}");
    assert!(!format!("{later:?}").contains("hunter2"), "{later:?}");
    let before = SystemTime::now();
    server.restart(Data::Lost);
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    let acquired = SystemTime::now();
    tokio::time::sleep(SKEW * 2).await;
    let up = locks.health().await;
    assert!(up.is_ok() && up.error.is_none(), "{up:?}");
    assert!(up.since + SKEW > before && up.since < acquired + SKEW);
    drop(guard);
}

#[tokio::test]
async fn a_server_that_is_silent_is_waited_for_no_longer_than_a_call() {
    let server = RedisServer::start();
    let builder = tests::builder().call_timeout(300 * MS);
    let locks = answered(async || builder.clone().connect(&server.url()).await);
    let locks = locks.await.unwrap();
    server.sigstop();
    let (health, took) = took(locks.health()).await;
    assert_eq!(health.state, HealthState::Down);
    assert!((250 * MS..LONG).contains(&took), "{took:?}");
    assert!(
        health
            .error
            .unwrap()
            .contains("no answer within the call timeout")
    );
    // A caller that does not wait for the answer changes nothing.
    let dropped = timeout(10 * MS, locks.health()).await;
    drop(dropped);
    server.sigcont();
    once(&locks, HealthState::Ok).await;
    drop(locks.mutex("k").acquire().await.unwrap());
}

#[tokio::test]
async fn a_server_that_answers_with_an_error_is_not_healthy() {
    let server = RedisServer::builder()
        .line("busy-reply-threshold 30")
        .start();
    let locks = manager(&server.url()).await;
    let url = server.url();
    let hog = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let _: Result<Value, _> = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query(&mut connection);
    });
    let mut error = None;
    eventually("the server is busy", async || {
        error = locks.health().await.error;
        error.as_ref().is_some_and(|error| error.contains("BUSY"))
    })
    .await;
    let _: Value = server.query(&["SCRIPT", "KILL"]);
    hog.join().unwrap();
    once(&locks, HealthState::Ok).await;
}

#[tokio::test]
async fn a_user_without_the_right_to_ping_is_answered_all_the_same() {
    let rights = tests::documented_rights("ACL SETUSER locks on >PASSWORD");
    let rights: Vec<_> = rights
        .into_iter()
        .filter(|right| *right != "+ping")
        .collect();
    let rules = format!("on >secret {}", rights.join(" "));
    let server = RedisServer::builder().user("locks", &rules).start();
    let locks = manager(&server.url_with("locks", "secret")).await;
    let health = locks.health().await;
    assert!(health.is_ok(), "{health:?}");
    let refused: Vec<Value> = server.query(&["ACL", "LOG"]);
    assert!(!refused.is_empty(), "it was not asked by PING");
}

#[tokio::test]
async fn a_lazy_manager_is_healthy_once_its_server_is_there() {
    let mut server = RedisServer::start();
    server.kill9();
    let builder = tests::builder().lazy(true);
    let locks = builder.connect(&server.url()).await.unwrap();
    assert_eq!(locks.health().await.state, HealthState::Down);
    server.restart(Data::Lost);
    once(&locks, HealthState::Ok).await;
}

#[tokio::test]
async fn a_quorum_is_healthy_for_as_long_as_a_majority_answers() {
    let mut quorum = Quorum::redis(3).await;
    let locks = quorum.manager().await;
    assert!(locks.health().await.is_ok());
    quorum.kill9(1);
    let mut health = None;
    eventually("one node is away", async || {
        let told = locks.health().await;
        assert!(told.is_ok() && told.error.is_none(), "{told:?}");
        let failing = told.nodes.iter().filter(|node| !node.is_ok()).count();
        health = Some(told);
        failing == 1
    })
    .await;
    let away = &health.unwrap().nodes[0];
    let port = quorum.url(1);
    let port = port.rsplit(':').next().unwrap().trim_end_matches('/');
    assert!(away.node.contains(port) && away.error.is_some(), "{away:?}");
    quorum.kill9(2);
    let down = once(&locks, HealthState::Down).await;
    assert_eq!(down.store, StoreKind::Quorum);
    assert_eq!(down.nodes.iter().filter(|node| node.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_cluster_that_misses_a_master_is_partly_there() {
    let mut cluster = RedisCluster::start().await;
    let locks = manager(&cluster.url()).await;
    let health = locks.health().await;
    assert!(health.is_ok(), "{health:?}");
    assert_eq!(health.nodes.len(), 3);
    let before = SystemTime::now();
    cluster.kill9(1);
    let mut partial = health;
    eventually("the others answer, and it is down since then", async || {
        once(&locks, HealthState::Partial).await;
        let noticed = SystemTime::now();
        tokio::time::sleep(SKEW * 2).await;
        partial = locks.health().await;
        let others_answer = partial.nodes[1..].iter().all(|node| node.is_ok());
        partial.state == HealthState::Partial && others_answer && partial.since < noticed + SKEW
    })
    .await;
    assert!(partial.since + SKEW > before);
    let port = cluster.nodes[1].port().to_string();
    assert!(
        partial.error.as_ref().unwrap().contains(&port),
        "{partial:?}"
    );
    assert!(partial.nodes[0].node.contains(&port), "{partial:?}");
    cluster.kill9(0);
    cluster.kill9(2);
    once(&locks, HealthState::Down).await;
}
