//! A server with one client of each kind on it.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::{JavaPeer, RedisServer, eventually};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// A wait that only a failing test spends.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// Less than any cap or lease that a waiter who misses a message sleeps for, and much more than a push takes.
pub(crate) const ONE_PUSH: Duration = Duration::from_millis(400);

pub(crate) struct Pair {
    // Declared first: clients end before the server does.
    pub(crate) java: JavaPeer,
    /// Shares its names with Java: no namespace.
    pub(crate) rust: LockManager,
    pub(crate) server: RedisServer,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        Self::with_watchdog(Duration::from_secs(30)).await
    }

    /// Java renews its locks to this lease, every third of it.
    pub(crate) async fn with_watchdog(lease: Duration) -> Self {
        let server = RedisServer::start();
        let java = JavaPeer::with_watchdog(&server, lease).await;
        let rust = bare(&server).await;
        Self { java, rust, server }
    }

    /// Waits until so many clients listen for a release of this mutex.
    pub(crate) async fn listeners(&self, name: &str, wanted: i64) {
        listeners(&self.server, &mutex_channel(name), wanted).await;
    }
}

/// A manager that uses names as they are, as Redisson does.
pub(crate) async fn bare(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().namespace("");
    builder.connect(&server.url()).await.expect("connect")
}

/// Where releases of a mutex are announced: said a second time here, for the first is in the code under test.
pub(crate) fn mutex_channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

/// Waits until the channel has exactly so many subscribers.
pub(crate) async fn listeners(server: &RedisServer, channel: &str, wanted: i64) {
    eventually(&format!("{wanted} listen on {channel}"), async || {
        let (_, now): (String, i64) = server.query(&["PUBSUB", "NUMSUB", channel]);
        now == wanted
    })
    .await;
}

/// Whether every second time was within the bound: a busy machine spoils one, a missed message all of them.
pub(crate) fn mostly_within(bound: Duration, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2];
    assert!(
        median < bound,
        "half of {times:?} took longer than {bound:?}"
    );
}
