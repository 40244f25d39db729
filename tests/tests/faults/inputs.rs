//! Inputs that make no sense are refused before anything is sent, and the error says what and whether to retry.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockManagerBuilder, LockName, key};
use tests::{CommandStats, RedisServer, Store, eventually};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, PartialEq)]
enum Kind {
    Name,
    Lease,
    Config,
}

fn kind(error: &LockError) -> Option<Kind> {
    match error {
        LockError::InvalidName { .. } => Some(Kind::Name),
        LockError::InvalidLease { .. } => Some(Kind::Lease),
        LockError::InvalidConfig { .. } => Some(Kind::Config),
        _ => None,
    }
}

fn assert_refused(error: &LockError, expected: Kind, says: &str) {
    assert_eq!(kind(error), Some(expected), "{error:?}");
    assert!(error.to_string().contains(says), "{says}: {error}");
    assert!(!error.is_retryable(), "{error}");
}

/// Returns how many commands were sent beside those by which a connection looks now and then whether all is well. A look
/// subscribes to nothing but the control channel.
fn of_requests(sent: &CommandStats) -> u64 {
    let looks = ["ping", "hello", "subscribe"].map(|look| sent.calls(look));
    sent.total() - looks.iter().sum::<u64>()
}

/// Runs the scenario on the memory store and on Redis, where it must not send a single command.
async fn nothing_is_sent(scenario: impl AsyncFn(&LockManager)) {
    let store = Store::memory();
    scenario(&store.manager().await).await;
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let before = CommandStats::of(&server);
    scenario(&locks).await;
    let sent = CommandStats::of(&server).since(&before);
    assert_eq!(of_requests(&sent), 0, "{sent:?}");
    assert_eq!(server.channels(), ["lock:control:released"]);
}

#[tokio::test]
async fn bad_names_are_refused() {
    nothing_is_sent(async |locks| {
        let long = "n".repeat(513);
        let name = |text: &str| LockName::from(text);
        let bad = [
            (name(""), "1 byte"),
            (name(&long), "512 bytes"),
            // With the namespace, this name is too long.
            (name(&"n".repeat(510)), "512"),
            (key!("a:{}", ""), "empty"),
            (name("a:").with(&""), "empty"),
            (name("a:").with(&long), "512"),
            (key!("a:{}", "ü".repeat(90)), "512"),
        ];
        for (name, says) in bad {
            let refused = [
                locks.mutex(&name).acquire().await.map(drop),
                locks.mutex(&name).try_acquire().await.map(drop),
                locks
                    .mutex(&name)
                    .run(async |_| panic!("the body ran"))
                    .await,
                locks.inspect(&name).await.map(drop),
                locks.force_release(&name).await.map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_refused(&error, Kind::Name, says);
                // A long text that a user typed does not fill the log.
                assert!(error.to_string().len() < 500, "{error}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn bad_leases_are_refused() {
    nothing_is_sent(async |locks| {
        let leases = [
            (Duration::ZERO, false, "50 ms"),
            (49 * MS, false, "50 ms"),
            (Duration::from_micros(49_999), false, "50 ms"),
            (24 * HOUR + MS, false, "24 h"),
            (Duration::MAX, false, "24 h"),
            (999 * MS, true, "1 s"),
            (Duration::MAX, true, "24 h"),
        ];
        for (lease, renewed, says) in leases {
            let request = locks.mutex("order:7").lease(lease).auto_renew(renewed);
            let refused = [
                request.clone().acquire().await.map(drop),
                request.clone().try_acquire().await.map(drop),
                request.run(async |_| panic!("the body ran")).await,
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_refused(&error, Kind::Lease, says);
                assert!(error.to_string().contains("`order:7`"), "{error}");
            }
        }
        let longest = locks
            .mutex("k")
            .max_hold(49 * MS)
            .acquire()
            .await
            .unwrap_err();
        assert_refused(&longest, Kind::Config, "50 ms");
    })
    .await;
}

#[tokio::test]
async fn bad_waits_are_refused() {
    nothing_is_sent(async |locks| {
        for wait in [
            Duration::MAX,
            HOUR * 24 * 366,
            Duration::from_secs(u64::MAX),
        ] {
            let error = locks.mutex("k").wait(wait).acquire().await.unwrap_err();
            assert_refused(&error, Kind::Config, "wait_forever");
        }
    })
    .await;
}

#[tokio::test]
async fn a_bad_renewal_is_refused_and_the_hold_stays() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guard = locks.mutex("order:7").lease(HOUR).acquire().await.unwrap();
    eventually("it has said who it is", async || {
        server.records().len() == 1
    })
    .await;
    let before = CommandStats::of(&server);
    for lease in [Duration::ZERO, 49 * MS, 25 * HOUR, Duration::MAX] {
        let error = guard.renew(lease).await.unwrap_err();
        assert_refused(&error, Kind::Lease, "`order:7`");
    }
    let sent = CommandStats::of(&server).since(&before);
    assert_eq!(of_requests(&sent), 0, "{sent:?}");
    assert!(guard.is_held());
    // This lease is shorter than what is left, so nothing is taken away.
    guard.renew(100 * MS).await.unwrap();
    assert!(server.pttl("lock:order:7") > 1_800_000 && guard.remaining() > HOUR / 2);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_bounds_themselves_are_accepted() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    for (lease, renewed) in [(50 * MS, false), (1_000 * MS, true), (24 * HOUR, true)] {
        eventually("the lease is seen", async || {
            let request = locks.mutex("k").lease(lease).auto_renew(renewed);
            let guard = request.wait(HOUR * 24 * 365).acquire().await.unwrap();
            let left = server.pttl("lock:k");
            // On a busy machine, the shortest lease may be over before the server is asked.
            let is_over = left == -2 && !guard.is_held();
            assert!(
                is_over || left > 0 && Duration::from_millis(left.unsigned_abs()) <= lease,
                "{left} ms of {lease:?}"
            );
            let _ = guard.release().await;
            !is_over
        })
        .await;
    }
    for name in ["n", &"n".repeat(507)] {
        locks
            .mutex(name)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn bad_options_are_refused_before_a_connection_is_opened() {
    let server = RedisServer::start();
    let clients = |server: &RedisServer| {
        let stats: String = server.query(&["INFO", "stats"]);
        let line = stats
            .lines()
            .find(|line| line.starts_with("total_connections_received:"));
        line.unwrap().to_owned()
    };
    let before = clients(&server);
    let cases: [(LockManagerBuilder, Kind, &str); 8] = [
        (
            LockManager::builder().lease(Duration::ZERO),
            Kind::Lease,
            "50 ms",
        ),
        (LockManager::builder().lease(999 * MS), Kind::Lease, "1 s"),
        (LockManager::builder().lease(25 * HOUR), Kind::Lease, "24 h"),
        (
            LockManager::builder().wait(Duration::MAX),
            Kind::Config,
            "wait_forever",
        ),
        (
            LockManager::builder().call_timeout(Duration::ZERO),
            Kind::Config,
            "10 ms",
        ),
        (
            LockManager::builder().call_timeout(HOUR),
            Kind::Config,
            "60 s",
        ),
        (
            LockManager::builder().namespace("n".repeat(257)),
            Kind::Config,
            "256",
        ),
        (
            LockManager::builder().lease(Duration::MAX).lazy(true),
            Kind::Lease,
            "24 h",
        ),
    ];
    for (builder, expected, says) in cases {
        let error = builder.clone().connect(&server.url()).await.unwrap_err();
        assert_eq!(kind(&error).as_ref(), Some(&expected), "{error:?}");
        let in_memory = builder.in_memory().unwrap_err();
        assert_eq!(kind(&in_memory).as_ref(), Some(&expected), "{in_memory:?}");
        assert_refused(&error, expected, says);
    }
    assert_eq!(clients(&server), before, "no connection was opened");
}

#[tokio::test]
async fn malformed_urls_are_refused_and_no_lazy_manager_comes_of_them() {
    let urls = [
        "",
        " ",
        "redis",
        "redis:",
        "redis://",
        "localhost",
        "localhost:6379",
        "http://localhost/",
        "redis://localhost:99999/",
        "redis://localhost:x/",
        "redis://localhost/x",
        "redis://localhost/-1",
        "redis://[::1/",
        "redis://local host/",
        "unix://",
        "memory",
        "memory:",
        "redis-cluster://a,",
        "redis-cluster://a/1",
        "redis-sentinel://a",
        "redis://localhost/0?protocol=resp9",
    ];
    for url in urls {
        for lazy in [false, true] {
            let connected = LockManager::builder().lazy(lazy).connect(url).await;
            match connected {
                Err(error) => {
                    assert_eq!(kind(&error), Some(Kind::Config), "{url:?}: {error:?}");
                    assert!(!error.is_retryable());
                }
                Ok(_) => panic!("{url:?} was accepted"),
            }
        }
    }
}

/// A template's value cannot change the structure of the name: it is escaped, injectively.
#[tokio::test]
async fn template_values_of_any_text_are_locks_of_their_own() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let values = [
        "a", "a:b", "a%3Ab", "{a}", "a}", "}{", "a b", "a\0", "\r\n", "ü", "%", "%25", ":", "*",
    ];
    let mut guards = Vec::new();
    for value in values {
        let name = key!("user:{}:orders", value);
        let text = name
            .as_str()
            .strip_prefix("user:")
            .unwrap()
            .strip_suffix(":orders")
            .unwrap();
        assert!(
            !text.contains([':', '{', '}', ' ', '\0', '\r', '\n']) && text.is_ascii(),
            "{text}"
        );
        let guard = locks.mutex(&name).try_acquire().await.unwrap();
        guards.push(guard.expect(&format!("{value:?} collides with none")));
        assert!(server.exists(&format!("lock:{name}")));
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}
