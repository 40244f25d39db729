//! Tests of a replica of MariaDB that takes the primary's place: what becomes of locks, tokens and waiters.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::connected;
use tests::mysql::is_left_out;
use tests::{MariadbServer, answered, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// This is longer than a failover takes, also beside a disk that is busy.
const LEASE: Duration = Duration::from_secs(45);

/// Starts a primary, and a replica that has what it has.
async fn pair() -> (MariadbServer, MariadbServer) {
    let primary = MariadbServer::primary();
    let replica = primary.replica();
    follows(&primary, &replica).await;
    (primary, replica)
}

async fn follows(primary: &MariadbServer, replica: &MariadbServer) {
    eventually("the replica has all that the primary has", async || {
        primary.query("SELECT @@gtid_binlog_pos") == replica.query("SELECT @@gtid_slave_pos")
    })
    .await;
}

fn url(servers: [&MariadbServer; 2]) -> String {
    let [one, other] = servers.map(MariadbServer::port);
    // The option `read_only` does not concern this user.
    format!("mysql://lock@127.0.0.1:{one},127.0.0.1:{other}/locks")
}

async fn manager(url: &str) -> LockManager {
    let builder = tests::builder().ensure_schema(true).lease(LEASE);
    connected(builder, url).await
}

async fn token(locks: &LockManager, name: &str) -> u64 {
    let guard = locks.mutex(name).wait(4 * LONG).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap().get();
    guard.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_replica_has_is_held_on_and_tokens_rise() {
    if is_left_out() {
        return;
    }
    let (mut primary, replica) = pair().await;
    // The replica comes first in the URL: it is passed over.
    let url = url([&replica, &primary]);
    let (locks, other) = (manager(&url).await, manager(&url).await);
    let guard = locks.mutex("held").acquire().await.unwrap();
    let first = token(&locks, "k").await;
    let waiter = tokio::spawn(other.mutex("held").wait(10 * LONG).acquire());
    eventually("the waiter waits", async || {
        other.inspect("held").await.unwrap().local_waiters == 1
    })
    .await;
    follows(&primary, &replica).await;
    primary.kill9();
    let until = Instant::now() + guard.remaining();
    replica.promote();
    let next = token(&locks, "k").await;
    assert!(next > first, "{next} after {first}");
    // The lock has the same holder at the new primary. Nobody else can have renewed it since.
    eventually_within(4 * LONG, "the new primary renews it", async || {
        assert!(guard.is_held());
        Instant::now() + guard.remaining() > until + 1_000 * MS
    })
    .await;
    assert!(!waiter.is_finished());
    let before = guard.fencing_token().unwrap();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.fencing_token().unwrap() > before);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_replaces_a_frozen_primary_and_may_miss_a_lock() {
    if is_left_out() {
        return;
    }
    let (primary, replica) = pair().await;
    let url = url([&primary, &replica]);
    let (locks, other) = (manager(&url).await, manager(&url).await);
    token(&locks, "kept").await;
    follows(&primary, &replica).await;
    // From here on, the replica receives nothing.
    replica.query("STOP SLAVE");
    let guard = locks.mutex("missed").acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    primary.sigstop();
    replica.promote();
    // This is what docs/mysql.md says: the new primary does not know the lock, so two believe in it until the next
    // renewal.
    let second = other
        .mutex("missed")
        .wait(4 * LONG)
        .acquire()
        .await
        .unwrap();
    assert!(second.fencing_token().unwrap() > first);
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    assert!(second.is_held());
    second.release().await.unwrap();
    primary.sigcont();
}

#[tokio::test]
async fn a_url_of_replicas_alone_is_refused_with_what_to_do() {
    if is_left_out() {
        return;
    }
    let (primary, replica) = pair().await;
    drop(manager(&primary.url()).await);
    follows(&primary, &replica).await;
    match answered(async || LockManager::connect(&replica.url()).await).await {
        Err(LockError::InvalidConfig { why, .. }) => {
            assert!(why.contains("read-only"), "{why}");
            assert!(why.contains("name the primary"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let one = format!("127.0.0.1:{}", replica.port());
    let nobody = format!("mysql://lock@127.0.0.1:1,{one}/locks");
    eventually("it says what is wrong with each server", async || {
        let error = LockManager::connect(&nobody).await.unwrap_err();
        assert!(error.is_retryable(), "the primary may come back: {error}");
        let said = error.to_string();
        said.contains(&one) && said.contains("read-only") && said.contains("refused")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_begun_before_the_promotion_finds_the_new_primary() {
    if is_left_out() {
        return;
    }
    let (mut primary, replica) = pair().await;
    let locks = manager(&url([&primary, &replica])).await;
    token(&locks, "k").await;
    follows(&primary, &replica).await;
    primary.kill9();
    let refused = locks.mutex("k").try_acquire().await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    replica.promote();
    eventually_within(4 * LONG, "the new primary serves", async || {
        matches!(
            locks.mutex("k").try_acquire().await,
            Ok(TryAcquire::Acquired(_))
        )
    })
    .await;
}
