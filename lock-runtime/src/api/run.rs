//! The future of [`LockRequest::run`](crate::LockRequest::run), which acquires the lock and then runs the body under it.
//!
//! It is written by hand, because an `async` block keeps its captures beside the future that it awaits: bodies within bodies
//! would double in size at every level.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::api::guard::LockGuard;
use crate::api::lease::Lease;
use crate::protect::driver::{Driver, polled_after_completion};
use crate::protect::{Outcome, ProtectFuture};
use crate::values::LockError;

/// What the caller gets of the outcome: the outcome itself, or the body's value or the loss.
type Answer<V, T> = fn(Outcome<V>) -> Result<T, LockError>;

pin_project! {
    #[project = RunProj]
    #[must_use = "futures do nothing unless polled"]
    pub(crate) enum Run<A, F, Fut: Future, T> {
        Acquiring {
            #[pin]
            acquire: A,
            body: Option<F>,
            answer: Answer<Fut::Output, T>,
        },
        Running {
            #[pin]
            protect: ProtectFuture<Fut>,
            answer: Answer<Fut::Output, T>,
        },
    }
}

impl<A, F, Fut: Future, T> Run<A, F, Fut, T> {
    pub(crate) fn new(acquire: A, body: F, answer: Answer<Fut::Output, T>) -> Run<A, F, Fut, T> {
        Run::Acquiring {
            acquire,
            body: Some(body),
            answer,
        }
    }
}

impl<A, F, Fut, T> Future for Run<A, F, Fut, T>
where
    A: Future<Output = Result<LockGuard, LockError>>,
    F: FnOnce(Lease) -> Fut,
    Fut: Future,
{
    type Output = Result<T, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let running = match self.as_mut().project() {
                RunProj::Running { protect, answer } => return protect.poll(cx).map(*answer),
                RunProj::Acquiring {
                    acquire,
                    body,
                    answer,
                } => {
                    let guard = ready!(acquire.poll(cx))?;
                    let Some(body) = body.take() else {
                        polled_after_completion();
                    };
                    let lease = guard.lease();
                    let mut driver = Driver::new(guard.handles);
                    let future = driver.nest.call(|| body(lease));
                    Run::Running {
                        protect: ProtectFuture::new(driver, future),
                        answer: *answer,
                    }
                }
            };
            self.set(running);
        }
    }
}
