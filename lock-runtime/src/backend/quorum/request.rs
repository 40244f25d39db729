//! A request to every node: an acquire request that the nodes' tasks can own.

use std::time::Duration;

use crate::backend::{AcquireRequest, HoldRef};
use crate::values::{HolderId, Key, Moment, Ttl, clock};

#[derive(Clone, Debug)]
pub(super) struct NodeRequest {
    pub(super) key: Key,
    pub(super) holder: HolderId,
    pub(super) ttl: Ttl,
    pub(super) waits: Option<Duration>,
    pub(super) asked_at: Moment,
    /// The timeout of one call to one node.
    pub(super) timeout: Duration,
    /// The time until which the caller expects an answer.
    pub(super) deadline: Moment,
}

impl NodeRequest {
    pub(super) fn of(request: &AcquireRequest<'_>) -> NodeRequest {
        NodeRequest {
            key: request.hold_ref.key.clone(),
            holder: request.hold_ref.holder,
            ttl: request.ttl,
            waits: request.waits,
            asked_at: request.asked_at,
            timeout: request.ttl.node_timeout(request.timeout),
            deadline: request.deadline(),
        }
    }

    /// Returns the request to release a hold. The length of its lease is not known; it is the longest at most.
    pub(super) fn to_release(
        hold_ref: HoldRef<'_>,
        timeout: Duration,
        longest: Ttl,
    ) -> NodeRequest {
        let asked_at = clock::now();
        NodeRequest {
            key: hold_ref.key.clone(),
            holder: hold_ref.holder,
            ttl: longest,
            waits: None,
            asked_at,
            timeout,
            deadline: asked_at + timeout,
        }
    }

    pub(super) fn hold_ref(&self) -> HoldRef<'_> {
        HoldRef::one(&self.key, self.holder)
    }

    pub(super) fn request(&self) -> AcquireRequest<'_> {
        AcquireRequest {
            waits: self.waits,
            ..AcquireRequest::of(self.hold_ref(), self.ttl, self.asked_at, self.timeout)
        }
    }

    /// Returns the time at which the lease has ended by itself, even if a node granted it at the last moment.
    pub(super) fn over(&self) -> Moment {
        const SLACK: Duration = Duration::from_secs(1);
        self.asked_at + self.timeout + self.ttl.duration() + SLACK
    }
}
