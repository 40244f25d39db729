//! Futures that run under a hold: [`Scope`] passes the lineage on, [`Protect`] also ends the body when the hold is
//! lost and releases the hold after it, as `custody.rs` says.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::custody::{BodyOrValue, Custody, polled_after_completion};
use crate::error::LockError;
use crate::lineage::{Lineage, Nest};
use crate::observe;

pin_project! {
    /// A future that runs under a hold: see [`Lease::scope`](crate::Lease::scope).
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Scope<F> {
        nest: Nest,
        #[pin]
        future: F,
    }
}

impl<F> Scope<F> {
    pub(crate) fn new(lineage: Lineage, future: F) -> Scope<F> {
        Scope {
            nest: Nest::new(lineage),
            future,
        }
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut future = this.future;
        let mut polled = Poll::Pending;
        this.nest.enter(&mut || polled = future.as_mut().poll(cx));
        polled
    }
}

/// What a protected body came to.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// The body ran to its end.
    Completed {
        /// What it returned.
        value: T,
        /// [`LockError::Lost`], with `completed` set, if the release found that the hold had been lost: somebody
        /// else may have been admitted before the body's end.
        loss: Option<LockError>,
    },
    /// The body was dropped because the hold was lost.
    Cancelled {
        /// [`LockError::Lost`].
        loss: LockError,
    },
}

pin_project! {
    /// Runs a body under a hold, then releases it: see [`LockGuard::protect`](crate::LockGuard::protect).
    ///
    /// The loss is looked for before every poll of the body, so a process that was frozen does not go on when it
    /// wakes; the body is dropped in place before anything is returned.
    #[must_use = "futures do nothing unless polled"]
    pub struct Protect<F: Future> {
        // Before the custody: whatever drops this drops the body first, while the lock is still held.
        #[pin]
        body: BodyOrValue<F>,
        #[pin]
        custody: Custody,
    }
}

impl<F: Future> Protect<F> {
    pub(crate) fn new(custody: Custody, body: F) -> Protect<F> {
        Protect {
            body: BodyOrValue::Body { body },
            custody,
        }
    }
}

impl<F: Future> Future for Protect<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let outcome = ready!(this.custody.poll(cx, this.body.as_mut()));
        Poll::Ready(match outcome {
            Outcome::Cancelled { loss } => Outcome::Cancelled { loss },
            Outcome::Completed { loss, .. } => match this.body.take() {
                Some(value) => Outcome::Completed { value, loss },
                None => polled_after_completion(),
            },
        })
    }
}

impl<F: Future> fmt::Debug for Protect<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protect")
            .field("shares", &self.custody.shares())
            .finish_non_exhaustive()
    }
}

impl<T> Outcome<T> {
    /// The value if the body completed, else the loss. A completed body whose hold was lost before its release is a
    /// value, with a warning in the log: what [`run`](crate::LockRequest::run) returns.
    ///
    /// # Errors
    /// The loss that the body was dropped for.
    pub fn into_result(self) -> Result<T, LockError> {
        match self {
            Outcome::Completed { value, loss } => {
                if let Some(loss) = loss {
                    observe::lost_after_completion(&loss);
                }
                Ok(value)
            }
            Outcome::Cancelled { loss } => Err(loss),
        }
    }
}
