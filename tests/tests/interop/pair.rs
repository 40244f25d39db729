//! A server with one client of each kind on it.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::{CommandStats, JavaPeer, RedisServer, eventually};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// A wait that only a failing test spends.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// The limit for one push: less than any cap or lease for which a waiter that misses a message sleeps, and much more
/// than a push takes.
pub(crate) const ONE_PUSH: Duration = Duration::from_millis(400);

pub(crate) struct Pair {
    // This field is declared first, so that clients end before the server does.
    pub(crate) java: JavaPeer,
    /// The manager. It has no namespace, so it shares its names with Java.
    pub(crate) rust: LockManager,
    pub(crate) server: RedisServer,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        Self::with_watchdog(Duration::from_secs(30)).await
    }

    /// Starts a pair whose Java client renews its locks to this lease, every third of it.
    pub(crate) async fn with_watchdog(lease: Duration) -> Self {
        let server = RedisServer::start();
        let java = JavaPeer::with_watchdog(&server, lease).await;
        let rust = bare(&server).await;
        Self { java, rust, server }
    }

    /// Begins a wait for a held lock, and returns when the waiter sleeps: only a message or the time wakes it.
    pub(crate) async fn asleep<T>(&self, begin: impl FnOnce() -> T) -> T {
        self.refused_twice("pttl", begin).await
    }

    /// Does the same as `asleep`, for a kind of lock whose refusals read the store by this command, and whose grants do
    /// not.
    pub(crate) async fn refused_twice<T>(&self, command: &str, begin: impl FnOnce() -> T) -> T {
        // Either side asks, subscribes, and asks again. Ours asks only once where it is subscribed from the last time. Nobody
        // else may be refused meanwhile.
        const SETTLED: Duration = Duration::from_millis(20);
        let refusals = || CommandStats::of(&self.server).calls(command);
        let before = refusals();
        let waiter = begin();
        let mut seen = (before, Instant::now());
        eventually("the waiter was refused, and asks no more", async || {
            let now = refusals();
            if now != seen.0 {
                seen = (now, Instant::now());
            }
            now >= before + 2 || now > before && seen.1.elapsed() > SETTLED
        })
        .await;
        waiter
    }
}

/// Connects a manager that uses names as they are, as Redisson does.
pub(crate) async fn bare(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().namespace("");
    builder.connect(&server.url()).await.expect("connect")
}

/// Asserts that at least half of the times were within the bound: a busy machine spoils one, a missed message all of
/// them.
pub(crate) fn mostly_within(bound: Duration, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2];
    assert!(
        median < bound,
        "half of {times:?} took longer than {bound:?}"
    );
}

/// Asserts that a wait that began now ended with the lease: `left` is what the store said of it.
pub(crate) fn with_the_lease(since: Instant, left: Duration) {
    let waited = since.elapsed();
    assert!(
        waited + 10 * MS >= left,
        "{waited:?} of {left:?}: too early"
    );
    assert!(
        waited < left + 1_000 * MS,
        "{waited:?} of {left:?}: too late"
    );
}
