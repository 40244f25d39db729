//! The parts of the requests of all kinds: an acquire and a release on one connection.

use std::sync::atomic::Ordering;

use crate::backend::redis::connection::Live;
use crate::backend::redis::router::{AcquireRoute, Router};
use crate::backend::redis::scripting::rights::{self, Rights};
use crate::backend::redis::scripting::{Script, Source};
use crate::backend::{AcquireRequest, Fault, HoldRef, WithRelease};
use crate::values::{Moment, SPARE_TOKENS, TokenRange, rare};

/// An acquire that is sent on one connection.
pub(crate) struct Sending<'a> {
    pub(super) router: &'a Router,
    pub(super) at: &'a AcquireRoute,
    pub(super) request: &'a AcquireRequest<'a>,
    /// Whether the script of the acquire makes a token.
    pub(super) fenced: bool,
    /// The time until which the server may grant the lock, in µs of its TIME.
    pub(super) not_after: u64,
}

impl Sending<'_> {
    /// Returns the key of the fence, if this script makes a token.
    pub(crate) fn fence(&self) -> Option<String> {
        self.fenced.then(|| self.request.hold_ref.key.fence())
    }

    /// Returns the number of tokens to reserve for other callers of the process.
    pub(crate) fn spare(&self) -> Option<u64> {
        // If the fence is at another node, the token is made later, and no tokens are reserved.
        let is_whole = self.fenced == self.request.fenced;
        (self.request.others_wait && is_whole).then_some(SPARE_TOKENS)
    }

    pub(crate) async fn call<S: Script>(&self, script: &S) -> Result<S::Reply, Fault> {
        let deadline = self.request.deadline();
        self.at.live.call(script, self.at.sent_at, deadline).await
    }

    /// As [`call`](Sending::call), for a kind with scripts of its own. Before the first request, also checks the rights
    /// of the `later` scripts, and those on a key that only these have: a user that may take such a lock but not give it
    /// back is refused at once.
    pub(crate) async fn call_before<S: Script>(
        &self,
        later: &[&Source],
        key_of_later: impl FnOnce() -> Option<String>,
        script: &S,
    ) -> Result<S::Reply, Fault> {
        let kind = 1 << self.request.hold_ref.key.kind() as u8;
        if self.router.rights_of.load(Ordering::Relaxed) & kind == 0 {
            let question = Rights::of_all(script, later, key_of_later());
            // The question may not take much of the caller's time. If it gets no answer, it is not asked again.
            let deadline = self.request.deadline();
            let deadline = deadline.earlier(self.at.sent_at + rights::LONGEST);
            let asked = self.at.live.call(&question, self.at.sent_at, deadline);
            match rare(asked).await {
                Ok(missing) if !missing.is_empty() => {
                    return Err(Fault::denied(format!(
                        "the lock could be taken and not be given back; missing rights: {}",
                        missing.join(" ")
                    )));
                }
                // The server is busy with something else. The acquire itself will show it.
                Err(Fault::NotDone(why)) if !why.to_string().starts_with("ERR") => {}
                // Some servers cannot answer questions about rights.
                Ok(_) | Err(_) => _ = self.router.rights_of.fetch_or(kind, Ordering::Relaxed),
            }
        }
        self.call(script).await
    }
}

/// A release that is sent on one connection.
pub(crate) struct Releasing<'a> {
    pub(super) router: &'a Router,
    pub(super) live: &'a Live,
    pub(super) hold_ref: HoldRef<'a>,
    pub(super) with: WithRelease<'a>,
    /// It compensates an acquire, which may still wait to be sent.
    pub(super) undoes: bool,
    pub(super) sent_at: Moment,
    pub(super) deadline: Moment,
}

impl Releasing<'_> {
    /// Returns the reserved tokens that go back with the lock. In a cluster, none do: lock and fence may be at two
    /// nodes while their slot moves, and a release must not fail because of that.
    pub(crate) fn unused(&self) -> Option<&TokenRange> {
        self.with.unused.filter(|_| self.router.is_alone())
    }

    pub(crate) async fn call<S: Script>(&self, script: &S) -> Result<S::Reply, Fault> {
        self.live.call(script, self.sent_at, self.deadline).await
    }
}
