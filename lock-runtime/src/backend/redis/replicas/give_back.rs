//! A lock that was granted and that too few replicas know of, or that nobody waits for any more, goes back.

use std::sync::Arc;
use std::time::Duration;

use super::super::Inner;
use crate::backend::redis::kinds::acquire::{Pending, undo_pauses};
use crate::backend::{AcquireRequest, Fault, HoldRef};
use crate::values::clock::{self, Moment};
use crate::values::holder::HolderId;
use crate::values::key::Key;

/// How long a caller waits for it. A server that answers at all has done so by then; else it goes on behind.
const PATIENCE: Duration = Duration::from_millis(250);
/// The server's lease may end so much later than we think.
const SLACK: Duration = Duration::from_secs(1);

/// Gives back, when it is dropped, what was granted. In the background, where it keeps the backend from closing.
pub(super) struct GiveBack<'a> {
    inner: &'a Arc<Inner>,
    /// Empty once there is nothing to do.
    requests: &'a [AcquireRequest<'a>],
}

impl<'a> GiveBack<'a> {
    pub(super) fn unless_kept(
        inner: &'a Arc<Inner>,
        requests: &'a [AcquireRequest<'a>],
    ) -> GiveBack<'a> {
        GiveBack { inner, requests }
    }

    pub(super) fn keep(mut self) {
        self.requests = &[];
    }

    /// Gives it back, and waits a little until it is done.
    pub(super) async fn now(mut self) {
        if let Some(task) = self.start() {
            let _ = tokio::time::timeout(PATIENCE, task).await;
        }
    }

    fn start(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let requests = std::mem::take(&mut self.requests);
        if requests.is_empty() {
            return None;
        }
        let now = clock::now();
        let grants: Vec<_> = requests
            .iter()
            .map(|request| Grant {
                key: request.hold_ref.key.clone(),
                holder: request.hold_ref.holder,
                permits: request.hold_ref.permits,
                over: now + request.ttl.duration() + SLACK,
            })
            .collect();
        let pending = Pending::one(self.inner);
        let inner = self.inner.clone();
        Some(self.inner.handle.spawn(async move {
            for grant in &grants {
                grant.release(&inner).await;
            }
            drop(pending);
        }))
    }
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        drop(self.start());
    }
}

struct Grant {
    key: Key,
    holder: HolderId,
    permits: u32,
    /// When the lease has ended by itself.
    over: Moment,
}

impl Grant {
    /// Until there is an answer. The grant was answered before this is sent, so none can overtake it.
    async fn release(&self, inner: &Inner) {
        let mut pauses = undo_pauses();
        while !self.over.has_passed() {
            match self.release_once(inner).await {
                Ok(()) | Err(Fault::Closed(_) | Fault::Denied(_)) => return,
                Err(_) => clock::sleep(pauses.pause()).await,
            }
        }
    }

    async fn release_once(&self, inner: &Inner) -> Result<(), Fault> {
        let now = clock::now();
        let deadline = (now + inner.call_timeout).earlier(self.over);
        let hold_ref = HoldRef {
            key: &self.key,
            holder: self.holder,
            permits: self.permits,
        };
        let (_, from) = inner.give_back(hold_ref, now, deadline).await?;
        // What a deposed master forgets, the new one may still have.
        inner.vouch(Some(from), deadline).await
    }
}
