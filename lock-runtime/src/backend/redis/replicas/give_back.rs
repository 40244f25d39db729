//! Gives back a granted lock if too few replicas know of it, or if its caller has gone.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::AcquireRequest;
use crate::backend::redis::kinds::acquire::Compensation;
use crate::backend::redis::router::Router;
use crate::values::clock;

/// The time for which a caller waits for the release. A server that answers at all has answered by then; otherwise the
/// release goes on in the background.
const TIMEOUT: Duration = Duration::from_millis(250);

/// Gives the granted locks back when it is dropped. This runs in the background, and the backend closes only after it.
pub(super) struct GiveBack<'a> {
    router: &'a Arc<Router>,
    /// The granted requests. Empty if there is nothing to give back.
    requests: &'a [AcquireRequest<'a>],
}

impl<'a> GiveBack<'a> {
    pub(super) fn unless_kept(
        router: &'a Arc<Router>,
        requests: &'a [AcquireRequest<'a>],
    ) -> GiveBack<'a> {
        GiveBack { router, requests }
    }

    pub(super) fn keep(mut self) {
        self.requests = &[];
    }

    /// Gives the locks back, and waits a little until that is done.
    pub(super) async fn now(mut self) {
        if let Some(task) = self.start() {
            let _ = tokio::time::timeout(TIMEOUT, task).await;
        }
    }

    fn start(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let requests = std::mem::take(&mut self.requests);
        if requests.is_empty() {
            return None;
        }
        let now = clock::now();
        let of = |request| Compensation::of(self.router, request, None, now);
        let compensations: Vec<_> = requests.iter().map(of).collect();
        Some(self.router.handle.spawn(async move {
            for compensation in compensations {
                compensation.run().await;
            }
        }))
    }
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        drop(self.start());
    }
}
