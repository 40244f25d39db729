//! From the request to the response: wait for the lock, call under it, release.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lock_runtime::{LockError, LockGuard, Outcome, Protect};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::refusal::{Refusal, RefusalKind};
use crate::reply::Reply;

/// Boxed: a request's wait is an unnamed future of the runtime.
pub(crate) type Acquire = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

pin_project! {
    /// The response future of [`LockService`](crate::LockService).
    ///
    /// Dropping it leaves the queue for the lock, or drops the inner call and then releases the lock in the
    /// background.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Request, R>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Request, R>
    where
        S: Service<Request>,
    {
        Unlocked {
            #[pin]
            response: S::Future,
        },
        // The request stays whole: no part of its body is read while it waits.
        Waiting {
            guard: Acquire,
            call: Option<Call<S, Request>>,
            refuse: Option<Refuse<R>>,
        },
        Holding {
            #[pin]
            response: Protect<Call<S, Request>>,
            refuse: Option<Refuse<R>>,
        },
        Done,
    }
}

/// What it takes to refuse.
struct Refuse<R> {
    reply: R,
    /// Whether a busy lock was waited for.
    waits: bool,
}

impl<R> Refuse<R> {
    fn answer<Response, Error>(self, refusal: Refusal) -> Result<Response, Error>
    where
        R: Reply<Response, Error>,
    {
        if refusal.kind() == RefusalKind::Misconfigured {
            tracing::error!(error = %refusal, "a request was refused for want of its lock; a retry cannot help");
        } else {
            tracing::debug!(error = %refusal, "a request was refused");
        }
        self.reply.reply(refusal)
    }
}

impl<S, Request, R> ResponseFuture<S, Request, R>
where
    S: Service<Request>,
{
    /// The response of a request that needs no lock.
    pub(crate) fn unlocked(response: S::Future) -> Self {
        ResponseFuture {
            state: State::Unlocked { response },
        }
    }

    /// The response of a request that is to be served by `ready` under the lock.
    pub(crate) fn locked(
        guard: Acquire,
        ready: S,
        request: Request,
        reply: R,
        waits: bool,
    ) -> Self {
        let call = Call::Due {
            due: Some((ready, request)),
        };
        ResponseFuture {
            state: State::Waiting {
                guard,
                call: Some(call),
                refuse: Some(Refuse { reply, waits }),
            },
        }
    }
}

impl<S, Request, R> Future for ResponseFuture<S, Request, R>
where
    S: Service<Request>,
    R: Reply<S::Response, S::Error>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Unlocked { response } => return response.poll(cx),
                StateProj::Waiting {
                    guard,
                    call,
                    refuse,
                } => {
                    let guard = ready!(guard.as_mut().poll(cx));
                    let (Some(call), Some(refuse)) = (call.take(), refuse.take()) else {
                        return Poll::Pending;
                    };
                    match guard {
                        Ok(guard) => state.set(State::Holding {
                            response: guard.protect(call),
                            refuse: Some(refuse),
                        }),
                        Err(error) => {
                            state.set(State::Done);
                            // The request and the service that was reserved for it go first.
                            drop(call);
                            let refusal = Refusal::new(error, refuse.waits);
                            return Poll::Ready(refuse.answer(refusal));
                        }
                    }
                }
                StateProj::Holding { response, refuse } => {
                    let outcome = ready!(response.poll(cx));
                    let refuse = refuse.take();
                    state.set(State::Done);
                    return match (outcome, refuse) {
                        (Outcome::Completed { value, loss }, _) => {
                            if let Some(loss) = loss {
                                tracing::warn!(
                                    error = %loss,
                                    "the lock was lost before its release, but the response was finished: it is delivered"
                                );
                            }
                            Poll::Ready(value)
                        }
                        (Outcome::Cancelled { loss }, Some(refuse)) => {
                            let refusal = Refusal::new(loss, refuse.waits);
                            Poll::Ready(refuse.answer(refusal))
                        }
                        (Outcome::Cancelled { .. }, None) => Poll::Pending,
                    };
                }
                StateProj::Done => return Poll::Pending,
            }
        }
    }
}

impl<S, Request, R> fmt::Debug for ResponseFuture<S, Request, R>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Unlocked { .. } => "Unlocked",
            State::Waiting { .. } => "Waiting",
            State::Holding { .. } => "Holding",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The inner call. It is made at the first poll, not before: then the hold is known to be good, and what the
    /// service requests while it is being called is nested in it already.
    #[project = CallProj]
    pub(crate) enum Call<S, Request>
    where
        S: Service<Request>,
    {
        Due {
            due: Option<(S, Request)>,
        },
        Made {
            #[pin]
            response: S::Future,
        },
    }
}

impl<S, Request> Future for Call<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                CallProj::Due { due } => {
                    let Some((mut service, request)) = due.take() else {
                        return Poll::Pending;
                    };
                    let response = service.call(request);
                    self.set(Call::Made { response });
                }
                CallProj::Made { response } => return response.poll(cx),
            }
        }
    }
}
