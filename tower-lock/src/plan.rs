//! The data that a layer passes to its services, and the acquire of one request.

use std::pin::Pin;
use std::sync::Arc;

use lock_runtime::{LockError, LockGuard, LockManager, LockName};

use crate::key::Mode;
use crate::layer::LockOptions;
use crate::metrics;
use crate::waiters::{Caps, Waiters};

/// The data that a layer passes to each of its services.
#[derive(Clone, Debug)]
pub(crate) struct Plan<R> {
    pub(crate) manager: LockManager,
    pub(crate) options: LockOptions,
    pub(crate) caps: Caps,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) reply: R,
}

impl<R> Plan<R> {
    /// Labels the locks as the key does, unless the layer has a label of its own.
    pub(crate) fn labelled(mut self, by_key: Option<&'static str>) -> Self {
        self.options.label = self.options.label.or(by_key);
        self
    }

    /// Counts a request whose key names no lock.
    pub(crate) fn passed(&self, by_key: Option<&'static str>) {
        metrics::passed(self.options.label.or(by_key));
    }
}

/// The future of an acquire. It is boxed because the runtime's own future has no name.
pub(crate) type Acquire = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

impl LockOptions {
    /// Acquires the lock of one request. `asked`, the mode that the request's method asks for, replaces the layer's.
    pub(crate) fn acquire(
        &self,
        manager: &LockManager,
        name: LockName,
        asked: Option<Mode>,
    ) -> Acquire {
        let request = match asked.unwrap_or(self.mode) {
            Mode::Exclusive => manager.mutex(name),
            Mode::Fair => manager.fair(name),
            Mode::Read => manager.read(name),
            Mode::Write => manager.write(name),
            Mode::Permits(most) => manager.semaphore(name).in_all(most).permits(1),
        };
        Box::pin(self.apply(request).acquire())
    }
}
