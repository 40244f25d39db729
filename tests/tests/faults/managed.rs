//! Tests of servers that do not offer everything, as is the case with hosted services and proxies: what is missing is
//! reported once, and costs time at most.

use std::time::Duration;

use lock_runtime::LostReason;
use tests::conf::ServerConf;
use tests::faults::{asleep, behind_a_proxy, connected, renewed};
use tests::{Events, FaultProxy, RedisServer};
use tracing::Level;

use crate::acl::is_of_a_busy_machine;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// A wait to whose end only a waiter comes that does not look for itself.
const WAIT: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn without(commands: &[&str]) -> ServerConf {
    let renamed =
        |conf: ServerConf, command: &&str| conf.line(format!("rename-command {command} \"\""));
    commands.iter().fold(RedisServer::builder(), renamed)
}

#[tokio::test]
async fn without_pubsub_waiters_poll_and_the_log_reports_it_once() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let server = without(&[
        "SUBSCRIBE",
        "SSUBSCRIBE",
        "PSUBSCRIBE",
        "PUBLISH",
        "SPUBLISH",
        "PUBSUB",
    ])
    .start();
    // No lease ends, and no connection is given up because the machine is busy.
    let builder = tests::builder().lease(HOUR).call_timeout(2 * LONG);
    let locks = connected(builder.clone(), &server.url()).await;
    let (proxy, other) = behind_a_proxy(&server, builder).await;
    for name in ["a", "b", "c"] {
        let held = locks.mutex(name).acquire().await.unwrap();
        let waiting = asleep(&proxy, other.mutex(name).wait(WAIT).acquire()).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let latch = locks.latch("latch");
    latch.try_set_count(1).await.unwrap();
    let waiter = other.latch("latch");
    let waiting = asleep(&proxy, async move { waiter.opened().wait(WAIT).await }).await;
    latch.count_down().await.unwrap();
    waiting.await.unwrap().unwrap();

    // Nobody tells the holder of the forced release. It finds out at its next renewal.
    let forced = locks.mutex("forced").lease(18_000 * MS);
    let forced = forced.acquire().await.unwrap();
    assert!(other.force_release("forced").await.unwrap());
    assert_eq!(forced.lost().wait().await, LostReason::Refused);

    let warnings = events.of(Level::WARN);
    let about = |what: &str| warnings.iter().filter(|text| text.contains(what)).count();
    assert_eq!(about("refuses lock channels"), 1, "{warnings:#?}");
    assert_eq!(about("refuses the control channel"), 2, "one each manager");
    assert_eq!(about("reconnecting"), 0, "no connection is rebuilt for it");
}

#[tokio::test]
async fn without_script_client_config_and_info_only_info_is_logged() {
    let events = Events::default();
    let _log = tracing::subscriber::set_default(events.clone());
    let server = without(&["SCRIPT"])
        .user("app", "on >secret ~* &* +@all -info -client -config")
        .start();
    let url = server.url_with("app", "secret");
    let locks = tests::connected(&url).await;
    let held = locks.mutex("k").lease(18_000 * MS).acquire().await.unwrap();
    renewed([&held]).await;
    let waiting = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let fair = locks.fair("fair").acquire().await.unwrap();
    fair.release().await.unwrap();
    let reader = locks.read("shared").acquire().await.unwrap();
    reader.release().await.unwrap();
    let mut warnings = events.of(Level::WARN);
    warnings.retain(|text| !is_of_a_busy_machine(text));
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("(INFO)"), "{warnings:#?}");
}

#[tokio::test]
async fn locks_work_behind_a_proxy_that_loads_scripts_elsewhere() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    proxy.rewrite(|request| match request {
        [script, _load, text] if script.eq_ignore_ascii_case(b"SCRIPT") => {
            Some(vec![b"ECHO".to_vec(), text.to_vec()])
        }
        _ => None,
    });
    let locks = tests::connected(&proxy.url()).await;
    let held = locks.mutex("k").lease(LONG).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let reader = locks.read("shared").acquire().await.unwrap();
    reader.release().await.unwrap();
    // Some of these share a script.
    let mut many = tokio::task::JoinSet::new();
    for n in 0..32 {
        let locks = locks.clone();
        many.spawn(async move {
            for _ in 0..4 {
                let guard = locks.mutex(format!("key {n}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(ended) = many.join_next().await {
        ended.unwrap();
    }
    assert!(proxy.rewrites() > 0, "no script was loaded elsewhere");
}
