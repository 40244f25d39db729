//! The options of a layer's locks, which its services share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockName, LockRequest};

use crate::key::Mode;
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
    /// Counts a request whose key names no lock. `label` is the key's own.
    pub(crate) fn passed(&self, label: Option<&'static str>) {
        metrics::passed(self.options.label.or(label));
    }
}

/// The time for which a request may keep its lock by default.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// The options that the layer sets for each lock; the manager's defaults fill the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) keep_for: Option<Duration>,
    pub(crate) label: Option<&'static str>,
    pub(crate) mode: Mode,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            wait: None,
            lease: None,
            min_hold: None,
            max_hold: Some(LONGEST_HOLD),
            keep_for: None,
            label: None,
            mode: Mode::default(),
        }
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

    fn apply(&self, mut request: LockRequest) -> LockRequest {
        if let Some(wait) = self.wait {
            request = request.wait(wait);
        }
        if let Some(lease) = self.lease {
            request = request.lease(lease);
        }
        if let Some(least) = self.min_hold {
            request = request.min_hold(least);
        }
        if let Some(longest) = self.max_hold {
            request = request.max_hold(longest);
        }
        if let Some(keep_for) = self.keep_for {
            request = request.keep_for(keep_for);
        }
        if let Some(label) = self.label {
            request = request.label(label);
        }
        request
    }
}
