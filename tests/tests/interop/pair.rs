//! A server with one client of each kind on it.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, LockManagerBuilder};
use tests::faults::connected;
use tests::{CommandStats, JavaPeer, RedisServer, eventually};

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// A wait that only a failing test spends.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// The wait of a waiter that is told: less than what is left of a renewed lease of 30 s, after which a waiter that misses a
/// message looks again, and much more than a push takes.
pub(crate) const PUSHED: Duration = Duration::from_secs(15);
/// The lease of a hold that has to live for a while, and to end then or to be renewed: one that is renewed is not lost if the
/// machine stands still for almost ten seconds.
pub(crate) const LASTING: Duration = Duration::from_secs(15);
/// Longer than that lease: only a renewal keeps others out for this time.
pub(crate) const OUTLASTING: Duration = Duration::from_millis(22_500);

pub(crate) struct Pair {
    // This field is declared first, so that clients end before the server does.
    pub(crate) java: JavaPeer,
    /// The manager. It has no namespace, so it shares its names with Java.
    pub(crate) rust: LockManager,
    /// Another one, on which only a message wakes those who wait, or the end of a lease.
    pub(crate) told: LockManager,
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
        let told = connected(builder().longest_nap(HOUR), &server.url()).await;
        Self {
            java,
            rust,
            told,
            server,
        }
    }

    /// Begins a wait for a held lock, and returns when the waiter sleeps: only a message or the time wakes it.
    pub(crate) async fn asleep<T>(&self, begin: impl FnOnce() -> T) -> T {
        self.refused_twice("pttl", begin).await
    }

    /// Does the same as `asleep`, for a kind of lock whose refusals read the store by this command, and whose grants do
    /// not.
    pub(crate) async fn refused_twice<T>(&self, command: &str, begin: impl FnOnce() -> T) -> T {
        asks_no_more(|| CommandStats::of(&self.server).calls(command), begin).await
    }
}

/// Begins a wait, and returns when the waiter asks no more. `asked`: how often anybody has asked. Nobody else may ask
/// meanwhile.
pub(crate) async fn asks_no_more<T>(asked: impl Fn() -> u64, begin: impl FnOnce() -> T) -> T {
    // Either side asks, subscribes, and asks again. Ours asks only once where it is subscribed from the last time.
    const SETTLED: Duration = Duration::from_millis(20);
    let before = asked();
    let waiter = begin();
    let mut seen = (before, Instant::now());
    eventually("the waiter was refused, and asks no more", async || {
        let now = asked();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        now >= before + 2 || now > before && seen.1.elapsed() > SETTLED
    })
    .await;
    waiter
}

/// Returns the settings of managers that use names as they are, as Redisson does, and that wait for the answers of a busy
/// machine. Their lease is longer than Java's waits, so Java does not take its end for a message.
pub(crate) fn builder() -> LockManagerBuilder {
    tests::builder().namespace("")
}

pub(crate) async fn bare(server: &RedisServer) -> LockManager {
    connected(builder(), &server.url()).await
}

/// Asserts that a wait that began then did not end before the lease: `left` is what the store said of it. That it ends with
/// the lease, nobody need assert: the caller does not wait for ever.
pub(crate) fn with_the_lease(since: Instant, left: Duration) {
    let waited = since.elapsed();
    assert!(
        waited + 10 * MS >= left,
        "{waited:?} of {left:?}: too early"
    );
}
