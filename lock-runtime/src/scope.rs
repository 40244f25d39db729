//! Futures that run under a hold: [`Scope`] passes the lineage on, [`Protect`] also ends the body when the hold is
//! lost and releases the hold after it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::error::LockError;
use crate::joint::Shares;
use crate::lineage::{Chain, Level};
use crate::observe;
use crate::release::Ending;

pin_project! {
    /// A future that runs under a hold: see [`Lease::scope`](crate::Lease::scope).
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Scope<F> {
        level: Option<Arc<Level>>,
        // Set at the first poll: the lineage counts in the task that runs the future, not in the one that made it.
        chain: Option<Chain>,
        #[pin]
        future: F,
    }
}

impl<F> Scope<F> {
    pub(crate) fn new(level: Arc<Level>, future: F) -> Scope<F> {
        Scope {
            level: Some(level),
            chain: None,
            future,
        }
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if let Some(level) = this.level.take() {
            *this.chain = Some(Chain::here(level));
        }
        let future = this.future;
        match this.chain {
            Some(chain) => chain.enter(|| future.poll(cx)),
            None => future.poll(cx),
        }
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
        // Before the share: whatever drops this drops the body first, while the lock is still held.
        #[pin]
        body: Option<Scope<F>>,
        shares: Option<Shares>,
        #[pin]
        over: OwnedNotified,
        // What the body came to: its value, or the loss that it was dropped for.
        came_to: Option<Result<F::Output, LockError>>,
        // A loss does not stop the body.
        finish: bool,
        ending: Option<Ending>,
    }
}

impl<F: Future> Protect<F> {
    pub(crate) fn new(shares: Shares, body: F) -> Protect<F> {
        Protect {
            body: Some(Scope::new(shares.level().clone(), body)),
            over: shares.held().over_signal(),
            shares: Some(shares),
            came_to: None,
            finish: false,
            ending: None,
        }
    }

    /// Lets the body end even if the hold is lost.
    pub(crate) fn finishing(mut self, finish: bool) -> Protect<F> {
        self.finish = finish;
        self
    }
}

impl<F: Future> Future for Protect<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // The share stays where it is: should the body panic, it is dropped after what is left of the body.
        if let Some(shares) = this.shares.as_ref() {
            // The answer is not needed: it only makes sure that a loss wakes this task.
            let _ = this.over.poll(cx);
            let held = shares.held();
            if let Some(reason) = held.loss().filter(|_| !*this.finish) {
                *this.came_to = Some(Err(held.lost_error(reason, false)));
            } else if let Some(body) = this.body.as_mut().as_pin_mut() {
                *this.came_to = Some(Ok(ready!(body.poll(cx))));
            }
            this.body.set(None);
            *this.ending = this.shares.take().map(Shares::release);
        }
        let released = match this.ending {
            Some(ending) => ready!(ending.as_mut().poll(cx)),
            None => Ok(()),
        };
        *this.ending = None;
        Poll::Ready(match this.came_to.take() {
            Some(Ok(value)) => Outcome::Completed {
                value,
                loss: released.err().and_then(late_loss),
            },
            Some(Err(loss)) => Outcome::Cancelled { loss },
            None => panic!("`Protect` polled after completion"),
        })
    }
}

/// What a release says after the body has completed. Only a loss concerns the caller: otherwise the hold was good to
/// the body's end, and a release that is late does not change that.
fn late_loss(error: LockError) -> Option<LockError> {
    match error {
        LockError::Lost {
            name,
            held_for,
            reason,
            ..
        } => Some(LockError::Lost {
            name,
            held_for,
            reason,
            completed: true,
        }),
        error => {
            observe::release_failed("(protected body)", &error);
            None
        }
    }
}

impl<F: Future> fmt::Debug for Protect<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protect")
            .field("shares", &self.shares)
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
