//! The libraries, one file for each: how it connects, acquires and releases, with the settings that docs/benchmarks.md
//! lists.

pub(crate) mod bare;
pub(crate) mod distkit;
pub(crate) mod lock_runtime;
pub(crate) mod rslock;

use std::time::Duration;

/// The lease for every library: 30 s.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A library that is connected.
pub(crate) trait Peer {
    type Lock: Lock;

    /// Returns the lock that one task uses for this key.
    fn lock(&self, key: &str) -> Self::Lock;

    /// Waits for what is still done in the background, so that no lock stays for its lease.
    async fn end(&self) {}
}

pub(crate) trait Lock: Send + 'static {
    type Guard: Send;

    /// Waits without a limit.
    fn acquire(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn release(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}
