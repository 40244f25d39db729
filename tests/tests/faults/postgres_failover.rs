//! Tests of a primary of PostgreSQL that is gone, and a standby that takes its place.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager, LostReason, TryAcquire};
use tests::faults::{connected, told};
use tests::{PostgresServer, answered, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// This is longer than a failover takes, also beside a disk that is busy.
const LEASE: Duration = Duration::from_secs(45);

/// Starts a primary and a standby. If the standby is synchronous, commits wait for it, so that they outlast a failover.
async fn pair(synchronous: bool) -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    if synchronous {
        primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.query("SELECT pg_reload_conf()");
    }
    let state = if synchronous { "sync" } else { "async" };
    eventually("the standby follows", async || {
        primary.query("SELECT sync_state FROM pg_stat_replication") == [state]
    })
    .await;
    (primary, standby)
}

async fn has_the_table(standby: &PostgresServer) {
    let table = "SELECT to_regclass('lock_leases')";
    eventually("the standby has the table", async || {
        standby.query(table) == ["lock_leases"]
    })
    .await;
}

fn url(servers: [&PostgresServer; 2]) -> String {
    let [one, other] = servers.map(PostgresServer::port);
    format!("postgres://lock@127.0.0.1:{one},127.0.0.1:{other}/postgres")
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

async fn count(locks: &LockManager, name: &str) -> u64 {
    let guard = locks.fenced(name).wait(4 * LONG).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap().get();
    guard.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_tokens_outlast_a_failover_to_a_synchronous_standby() {
    let (mut primary, standby) = pair(true).await;
    // The standby comes first in the URL: it is passed over.
    let url = url([&standby, &primary]);
    let (locks, other) = (manager(&url).await, manager(&url).await);
    let told = connected(told(), &url).await;
    let guard = locks.mutex("held").acquire().await.unwrap();
    let long = locks.mutex("waited for").lease(20 * LONG);
    let long = long.acquire().await.unwrap();
    let (first, counted) = (token(&locks, "k").await, count(&locks, "counted").await);
    let waiter = tokio::spawn(told.mutex("waited for").wait(10 * LONG).acquire());
    eventually("the waiter waits", async || {
        told.inspect("waited for").await.unwrap().local_waiters == 1
    })
    .await;
    primary.kill9();
    let until = Instant::now() + guard.remaining();
    standby.promote();
    let next = token(&locks, "k").await;
    assert!(next > first, "{next} after {first}");
    assert_eq!(count(&other, "counted").await, counted + 1);
    // The lock has the same holder at the new primary. Nobody else can have renewed it since.
    eventually_within(4 * LONG, "the new primary renews it", async || {
        assert!(guard.is_held());
        Instant::now() + guard.remaining() > until + 1_000 * MS
    })
    .await;
    guard.release().await.unwrap();
    assert!(!waiter.is_finished());
    let before = long.fencing_token().unwrap();
    // The row says for 10 s that somebody waits who is to be told. This one asks again and again, so it says it now.
    let beside = other.mutex("waited for").wait(4 * LONG);
    let beside = tokio::spawn(async move { beside.acquire().await?.release().await });
    let said = "SELECT 1 FROM lock_leases WHERE name = 'lock:waited for' AND waited_until > now()";
    eventually("the row says that somebody waits", async || {
        !standby.ask(said).await.is_empty()
    })
    .await;
    long.release().await.unwrap();
    // Only the new primary can tell the waiter.
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > before);
    next.release().await.unwrap();
    beside.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_standby_for_a_frozen_primary_may_have_missed_locks() {
    let (primary, standby) = pair(false).await;
    let url = url([&primary, &standby]);
    let (locks, other) = (manager(&url).await, manager(&url).await);
    token(&locks, "kept").await;
    has_the_table(&standby).await;
    let kept = "SELECT count(*) FROM lock_leases WHERE name = 'lock:kept'";
    eventually("the standby has the row", async || {
        standby.query(kept) == ["1"]
    })
    .await;
    // From here on, the standby receives nothing.
    standby.query("ALTER SYSTEM SET primary_conninfo = ''");
    standby.query("SELECT pg_reload_conf()");
    eventually("the standby has left", async || {
        primary.query("SELECT count(*) FROM pg_stat_replication") == ["0"]
    })
    .await;
    let guard = locks.mutex("missed").acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    primary.sigstop();
    standby.promote();
    // This is what docs/postgres.md says: the new primary does not know the lock, so two believe in it until the next
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
async fn a_url_of_standbys_alone_is_refused_with_what_to_do() {
    let (primary, standby) = pair(false).await;
    drop(manager(&primary.url()).await);
    has_the_table(&standby).await;
    match answered(async || LockManager::connect(&standby.url()).await).await {
        Err(LockError::InvalidConfig { why, .. }) => {
            assert!(why.contains("read-only standby"), "{why}");
            assert!(why.contains("name the primary"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let one = format!("127.0.0.1:{}", standby.port());
    let twice = format!("postgres://lock@{one},{one}/postgres");
    eventually("it says which server does not allow writes", async || {
        let error = LockManager::connect(&twice).await.unwrap_err();
        assert!(error.is_retryable(), "a standby may be promoted: {error}");
        let said = error.to_string();
        said.contains(&one) && said.contains("does not allow writes")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_wait_for_a_standby_is_ended_grants_nothing() {
    let (primary, mut standby) = pair(true).await;
    // The server reports success, with a warning that is not sent then.
    primary.query("ALTER ROLE lock SET client_min_messages = error");
    let builder = tests::builder().ensure_schema(true);
    let builder = builder.lease(20 * LONG).call_timeout(2 * LONG);
    let locks = connected(builder, &url([&primary, &standby])).await;
    standby.kill9();
    let asking = tokio::spawn(locks.mutex("k").try_acquire());
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%lock_leases%'";
    eventually("the commit waits for the standby", async || {
        !primary.query(&format!("SELECT pid {waits}")).is_empty()
    })
    .await;
    primary.query(&format!("SELECT pg_cancel_backend(pid) {waits}"));
    let refused = asking.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("standby"), "{refused:?}");
    assert!(matches!(refused, LockError::Unavailable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_begun_before_the_promotion_finds_the_new_primary() {
    let (mut primary, standby) = pair(true).await;
    let locks = manager(&url([&primary, &standby])).await;
    token(&locks, "k").await;
    primary.kill9();
    // The processes of its connections live on for a moment.
    eventually_within(4 * LONG, "the old primary is gone", async || {
        let refused = locks.mutex("k").try_acquire().await.err();
        refused.is_some_and(|refused| refused.is_retryable())
    })
    .await;
    standby.promote();
    eventually_within(4 * LONG, "the new primary serves", async || {
        matches!(
            locks.mutex("k").try_acquire().await,
            Ok(TryAcquire::Acquired(_))
        )
    })
    .await;
}
