//! Release: gives back on one connection what a holder has.

use super::{exclusive, fair, permits, read_write};
use crate::backend::redis::connection::Live;
use crate::backend::redis::scripting::Script;
use crate::backend::redis::{GaveBack, Inner};
use crate::backend::{Fault, HoldRef};
use crate::values::{Kind, Moment, UnusedTokens};

/// A release that goes out on one connection.
pub(crate) struct Releasing<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) live: &'a Live,
    pub(crate) hold_ref: HoldRef<'a>,
    /// Tokens that nobody has had.
    pub(crate) unused: Option<&'a UnusedTokens>,
    pub(crate) sent_at: Moment,
    pub(crate) deadline: Moment,
}

impl Releasing<'_> {
    pub(crate) async fn ask(&self) -> Result<GaveBack, Fault> {
        match self.hold_ref.key.kind() {
            Kind::Mutex | Kind::Fenced => exclusive::release(self).await,
            // Boxed: a mutex need not carry their size.
            Kind::Semaphore => Box::pin(permits::release(self)).await,
            Kind::Fair => Box::pin(fair::release(self)).await,
            Kind::Read | Kind::Write => Box::pin(read_write::release(self)).await,
        }
    }

    /// The tokens that go back with the lock. Not in a cluster: lock and fence may be at two nodes while their slot moves, and
    /// a release is not to fail because of that.
    pub(super) fn unused(&self) -> Option<&UnusedTokens> {
        self.unused.filter(|_| self.inner.is_alone())
    }

    pub(super) async fn call<S: Script>(&self, script: &S) -> Result<S::Reply, Fault> {
        self.live.call(script, self.sent_at, self.deadline).await
    }
}
