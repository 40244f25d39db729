//! Tests of the records of managers: what is in the store, who may read it, and when it goes.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_runtime::LockError;
use redis::Value;
use tests::faults::connected;
use tests::stops::{in_one_of_a_few_rounds, shut_down};
use tests::{Events, RedisServer, Worker, documented_rights, eventually};
use tracing::Level;

const HOLDER: &str = env!("CARGO_BIN_EXE_holder");

/// Waits until there is one record, and returns its key.
async fn record(server: &RedisServer) -> String {
    eventually("a manager has said who it is", async || {
        server.records().len() == 1
    })
    .await;
    server.records().remove(0)
}

#[tokio::test]
async fn an_operator_reads_who_a_manager_is_and_finds_no_holders_id() {
    let server = RedisServer::start();
    let builder = tests::builder().app("orders-api");
    let locks = connected(builder, &server.url()).await;
    assert!(server.records().is_empty(), "it holds nothing");
    let guard = locks.mutex("k").acquire().await.unwrap();
    let key = record(&server).await;
    let fields: BTreeMap<String, String> = server.query(&["HGETALL", &key]);
    assert_eq!(fields["app"], "orders-api");
    assert_eq!(fields["id"], locks.id());
    assert_eq!(fields["process_id"], std::process::id().to_string());
    assert_eq!(fields.len(), 6, "{fields:?}");
    let holders: Vec<String> = server.query(&["HKEYS", "lock:k"]);
    let (client, _) = holders[0].split_once(':').unwrap();
    assert!(!format!("{key} {fields:?}").contains(client), "{key}");
    assert!(key.starts_with("lock:lock-manager:{"), "{key}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn many_locks_are_one_record_which_a_shutdown_deletes() {
    // A shutdown waits for two seconds at most, and a machine that stands still may need longer.
    in_one_of_a_few_rounds(Duration::ZERO, "the record is deleted", async || {
        let server = RedisServer::start();
        let locks = tests::connected(&server.url()).await;
        for round in 0..50 {
            let guard = locks.mutex(format!("k{round}")).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        record(&server).await;
        let in_time = shut_down(&locks).await;
        // No wait is needed: the record was deleted before the shutdown returned.
        let is_deleted = server.records().is_empty();
        assert!(is_deleted || !in_time, "the record is still there");
        is_deleted
    })
    .await;
}

#[tokio::test]
async fn the_record_of_a_manager_that_is_dropped_is_deleted() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    record(&server).await;
    drop((guard, locks));
    eventually("the record is deleted", async || {
        server.records().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_killed_process_is_seen_until_its_record_ends_by_its_ttl() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let mut holder = Worker::start(HOLDER, &["step", &server.url(), "k", "3600000"]);
    holder.line().expect("it holds");
    let key = record(&server).await;
    holder.kill9();
    let seen = locks.inspect("k").await.unwrap().holder.unwrap();
    assert_eq!(
        (seen.app(), seen.process_id()),
        (Some("holder"), Some(holder.pid()))
    );
    let left = server.pttl(&key);
    assert!((1..=90_000).contains(&left), "{left}");
    let _: Value = server.query(&["PEXPIRE", &key, "1"]);
    eventually("the record is over", async || server.records().is_empty()).await;
    let seen = locks.inspect("k").await.unwrap().holder.unwrap();
    assert_eq!(seen.app(), None, "{seen}");
}

#[tokio::test]
async fn a_refused_record_is_logged_once_and_locks_work_as_before() {
    let rights = documented_rights("ACL SETUSER bare-locks on >PASSWORD");
    let fewer = rights
        .iter()
        .filter(|right| !right.contains("lock-manager"));
    let rules = fewer.copied().collect::<Vec<_>>().join(" ");
    let server = RedisServer::builder()
        .user("locks", &format!("on >secret {rules}"))
        .start();
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let told = || {
        let mut told = events.of(Level::INFO);
        told.retain(|text| text.contains("refuses the record"));
        told
    };
    let builder = tests::builder().namespace("");
    let locks = connected(builder, &server.url_with("locks", "secret")).await;
    for _ in 0..20 {
        let guard = locks.mutex("orders:1").acquire().await.unwrap();
        guard.release().await.unwrap();
        eventually("it is told", async || told().len() == 1).await;
    }
    let text = &told()[0];
    assert!(text.contains("missing rights: ~lock-manager:{"), "{text}");
    let mut warned = events.of(Level::WARN);
    warned.retain(|text| text.contains("record") || text.contains("lock-manager"));
    assert_eq!(warned, Vec::<String>::new());
    // No record tells who the holder is, and it is a holder all the same.
    let builder = tests::builder().namespace("");
    let other = connected(builder, &server.url_with("locks", "secret")).await;
    let guard = locks.mutex("orders:1").acquire().await.unwrap();
    let seen = other.inspect("orders:1").await.unwrap().holder.unwrap();
    assert_eq!(seen.app(), None);
    assert!(seen.to_string().starts_with(&locks.id()), "{seen}");
    guard.release().await.unwrap();
    assert!(server.records().is_empty());
}

#[tokio::test]
async fn an_unreadable_record_does_not_delay_or_fail_an_inspection() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let key = record(&server).await;
    let _: Value = server.query(&["DEL", &key]);
    let _: Value = server.query(&["SET", &key, "something else"]);
    let other = tests::connected(&server.url()).await;
    let info = other.inspect("k").await.unwrap();
    assert!(info.held && info.holder.unwrap().app().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_name_that_would_be_a_record_is_refused_before_it_is_sent() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let key = record(&server).await;
    let name = key.strip_prefix("lock:").unwrap();
    let refused = locks.mutex(name).acquire().await;
    assert!(
        matches!(refused, Err(LockError::InvalidName { .. })),
        "{refused:?}"
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_manager_says_who_it_is_in_the_log_when_it_begins() {
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let locks = tests::builder().app("orders-api").in_memory().unwrap();
    let begun = &events.of(Level::INFO)[0];
    for told in [
        locks.id(),
        "orders-api".to_owned(),
        "memory".to_owned(),
        locks.snapshot().host,
    ] {
        assert!(begun.contains(&told), "{told}: {begun}");
    }
}

#[tokio::test]
async fn the_name_of_an_app_is_checked_before_anything_is_sent() {
    for app in ["", "two\nlines", &"a".repeat(65)] {
        let connected = tests::builder()
            .app(app)
            .connect("redis://127.0.0.1:1/")
            .await;
        assert!(
            matches!(connected, Err(LockError::InvalidConfig { .. })),
            "{connected:?}"
        );
        assert!(tests::builder().app(app).in_memory().is_err());
    }
}
