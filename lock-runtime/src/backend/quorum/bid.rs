//! What is asked of every node: a claim that its tasks can own.

use std::time::Duration;

use crate::backend::{Claim, Stake};
use crate::clock::{self, Moment};
use crate::holder::HolderId;
use crate::key::Key;
use crate::term::Term;

#[derive(Clone, Debug)]
pub(super) struct Bid {
    pub(super) key: Key,
    pub(super) holder: HolderId,
    pub(super) term: Term,
    pub(super) waits: Option<Duration>,
    pub(super) asked_at: Moment,
    /// For one call to one node.
    pub(super) timeout: Duration,
    /// When the caller expects an answer.
    pub(super) deadline: Moment,
}

impl Bid {
    pub(super) fn of(claim: &Claim<'_>) -> Bid {
        Bid {
            key: claim.stake.key.clone(),
            holder: claim.stake.holder,
            term: claim.term,
            waits: claim.waits,
            asked_at: claim.asked_at,
            timeout: claim.term.node_timeout(claim.timeout),
            deadline: claim.asked_at + claim.timeout,
        }
    }

    /// A stake that is given back. How long its lease is, is not known: the longest at most.
    pub(super) fn to_release(stake: Stake<'_>, timeout: Duration, longest: Term) -> Bid {
        let asked_at = clock::now();
        Bid {
            key: stake.key.clone(),
            holder: stake.holder,
            term: longest,
            waits: None,
            asked_at,
            timeout,
            deadline: asked_at + timeout,
        }
    }

    /// The same, of another holder.
    pub(super) fn by(&self, holder: HolderId) -> Bid {
        Bid {
            holder,
            ..self.clone()
        }
    }

    pub(super) fn stake(&self) -> Stake<'_> {
        Stake {
            key: &self.key,
            holder: self.holder,
            permits: 1,
        }
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            stake: self.stake(),
            term: self.term,
            fenced: false,
            waits: self.waits,
            asked_at: self.asked_at,
            timeout: self.timeout,
        }
    }

    /// When the lease has ended by itself, had a node granted it at the last moment.
    pub(super) fn over(&self) -> Moment {
        const SLACK: Duration = Duration::from_secs(1);
        self.asked_at + self.timeout + self.term.ttl() + SLACK
    }
}
