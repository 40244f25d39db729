//! One file for each library: how it connects, acquires and releases, with the settings that docs/benchmarks.md tells.

pub(crate) mod bare;
pub(crate) mod distkit;
pub(crate) mod lock_runtime;
pub(crate) mod rslock;

use std::time::Duration;

/// 30 s for every library.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A library, connected.
pub(crate) trait Peer {
    type Lock: Lock;

    /// What one task uses for this key.
    fn lock(&self, key: &str) -> Self::Lock;
}

pub(crate) trait Lock: Send + 'static {
    type Guard: Send;

    /// Waits without a limit.
    fn acquire(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn release(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}
