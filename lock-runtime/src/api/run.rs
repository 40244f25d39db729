//! The futures of [`LockRequest::run`](crate::LockRequest::run), which acquire the lock and then run the body under it.
//!
//! They are written by hand, because an `async` block keeps its captures beside the future that it awaits: bodies
//! within bodies would double in size at every level.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::api::guard::LockGuard;
use crate::api::lease::Lease;
use crate::protect::driver::{Driver, polled_after_completion};
use crate::protect::{Outcome, ProtectFuture};
use crate::values::LockError;

pin_project! {
    #[project = RunProj]
    #[must_use = "futures do nothing unless polled"]
    pub(crate) enum Run<A, F, Fut: Future> {
        Acquiring {
            #[pin]
            acquire: A,
            body: Option<F>,
        },
        Running {
            #[pin]
            protect: ProtectFuture<Fut>,
        },
    }
}

impl<A, F, Fut: Future> Run<A, F, Fut> {
    pub(crate) fn new(acquire: A, body: F) -> Run<A, F, Fut> {
        Run::Acquiring {
            acquire,
            body: Some(body),
        }
    }
}

impl<A, F, Fut> Future for Run<A, F, Fut>
where
    A: Future<Output = Result<LockGuard, LockError>>,
    F: FnOnce(Lease) -> Fut,
    Fut: Future,
{
    type Output = Result<Outcome<Fut::Output>, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let protect = match self.as_mut().project() {
                RunProj::Running { protect } => return protect.poll(cx).map(Ok),
                RunProj::Acquiring { acquire, body } => {
                    let guard = ready!(acquire.poll(cx))?;
                    let Some(body) = body.take() else {
                        polled_after_completion();
                    };
                    let lease = guard.lease();
                    let mut driver = Driver::new(guard.handles);
                    let future = driver.nest.call(|| body(lease));
                    ProtectFuture::new(driver, future)
                }
            };
            self.set(Run::Running { protect });
        }
    }
}

pin_project! {
    /// A future that turns the outcome into the body's value or the loss.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct ValueOrLoss<R> {
        #[pin]
        run: R,
    }
}

impl<R> ValueOrLoss<R> {
    pub(crate) fn new(run: R) -> ValueOrLoss<R> {
        ValueOrLoss { run }
    }
}

impl<R, T> Future for ValueOrLoss<R>
where
    R: Future<Output = Result<Outcome<T>, LockError>>,
{
    type Output = Result<T, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.project().run.poll(cx));
        Poll::Ready(outcome.and_then(Outcome::into_result))
    }
}
