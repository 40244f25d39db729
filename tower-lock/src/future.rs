//! The response future, which finds the key, waits for the lock, makes the inner call under it and releases it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lock_runtime::Outcome;
use pin_project_lite::pin_project;
use tokio::task::coop;
use tower_service::Service;

use crate::call::Call;
use crate::hold_until::HoldUntil;
use crate::key::{Client, Demand, Finding};
use crate::plan::{Acquire, Plan};
use crate::refusal::{self, Refusal, RefusalKind};
use crate::reply::Reply;
use crate::waiters::Waiting;

pin_project! {
    /// The response future of [`LockService`](crate::LockService).
    ///
    /// Dropping it leaves the queue for the lock, or drops the inner call and then releases the lock in the
    /// background.
    ///
    /// See the example of [`LockLayer`](crate::LockLayer).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Request, R, U>
    where
        S: Service<Request>,
        U: HoldUntil<S, Request>,
    {
        #[pin]
        state: State<S, Request, R, U::Holding>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Request, R, H>
    where
        S: Service<Request>,
    {
        Finding {
            finding: Finding<Request>,
            rest: Option<(S, Plan<R>, Option<Waiting>)>,
        },
        Unlocked {
            #[pin]
            response: S::Future,
        },
        // The request stays whole: no part of its body is read while it waits.
        Waiting {
            guard: Acquire,
            waiting: Option<Waiting>,
            rest: Option<(Call<S, Request>, R)>,
        },
        Holding {
            #[pin]
            response: H,
            reply: Option<R>,
        },
        Refused {
            refusal: Option<(R, Refusal)>,
        },
        Done,
    }
}

impl<S, Request, R, H> State<S, Request, R, H>
where
    S: Service<Request>,
{
    /// Returns the state of a request whose demand is known. `entered` says whether it may wait, if it needs a lock. If it is
    /// refused, what the inner service has reserved goes back with `ready`.
    fn known(
        plan: Plan<R>,
        entered: Result<Option<Waiting>, RefusalKind>,
        demand: Demand,
        mut ready: S,
        request: Request,
    ) -> Self {
        let Demand { name, mode, label } = demand;
        let name = match name {
            Ok(Some(name)) => name,
            Ok(None) => {
                drop(entered);
                plan.passed(label);
                let response = ready.call(request);
                return State::Unlocked { response };
            }
            Err(refusal) => return State::refused(plan.reply, refusal),
        };
        let plan = plan.labelled(label);
        let entered = match entered {
            Ok(Some(waiting)) => waiting.ask_for(&name).map(Some),
            others => others,
        };
        match entered {
            Ok(waiting) => State::Waiting {
                guard: plan.options.acquire(&plan.manager, name, mode),
                waiting,
                rest: Some((Call::new(ready, request), plan.reply)),
            },
            Err(kind) => State::refused(plan.reply, Refusal::of(kind)),
        }
    }

    fn refused(reply: R, refusal: Refusal) -> Self {
        State::Refused {
            refusal: Some((reply, refusal)),
        }
    }
}

impl<S, Request, R, U> ResponseFuture<S, Request, R, U>
where
    S: Service<Request>,
    U: HoldUntil<S, Request>,
{
    /// Returns the future of a request that needs no lock.
    pub(crate) fn unlocked(response: S::Future) -> Self {
        let state = State::Unlocked { response };
        ResponseFuture { state }
    }

    /// Returns the future of a request whose demand is known. `ready` is to serve it.
    pub(crate) fn known(
        plan: Plan<R>,
        client: Option<Client>,
        demand: Demand,
        ready: S,
        request: Request,
    ) -> Self {
        // A request without a name neither waits nor meets a cap.
        let entered = match demand.name {
            Ok(Some(_)) => plan.waiters.enter(plan.caps, client),
            _ => Ok(None),
        };
        let state = State::known(plan, entered, demand, ready, request);
        ResponseFuture { state }
    }

    /// Returns the future of a request whose key `finding` has yet to find.
    pub(crate) fn finding(
        plan: Plan<R>,
        client: Option<Client>,
        finding: Finding<Request>,
        ready: S,
    ) -> Self {
        let state = match plan.waiters.enter(plan.caps, client) {
            Ok(waiting) => State::Finding {
                finding,
                rest: Some((ready, plan, waiting)),
            },
            Err(kind) => State::refused(plan.reply, Refusal::of(kind)),
        };
        ResponseFuture { state }
    }
}

impl<S, Request, R, U> Future for ResponseFuture<S, Request, R, U>
where
    S: Service<Request>,
    U: HoldUntil<S, Request>,
    R: Reply<U::Response, S::Error>,
{
    type Output = Result<U::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        let response = loop {
            let next = match state.as_mut().project() {
                StateProj::Finding { finding, rest } => {
                    let (request, demand) = ready!(finding.as_mut().poll(cx));
                    let (ready, plan, waiting) = take_once(rest);
                    State::known(plan, Ok(waiting), demand, ready, request)
                }
                StateProj::Unlocked { response } => {
                    break ready!(response.poll(cx)).map(U::unlocked);
                }
                StateProj::Waiting {
                    guard,
                    waiting,
                    rest,
                } => {
                    let guard = ready!(guard.as_mut().poll(cx));
                    drop(waiting.take());
                    let (call, reply) = take_once(rest);
                    match guard {
                        Ok(guard) => State::Holding {
                            response: U::hold(guard, call),
                            reply: Some(reply),
                        },
                        // The request and the service that was reserved for it are dropped before the answer.
                        Err(error) => {
                            drop(call);
                            State::refused(reply, error.into())
                        }
                    }
                }
                StateProj::Holding { response, reply } => match ready!(response.poll(cx)) {
                    Outcome::Completed { value, loss } => {
                        if let Some(loss) = loss {
                            tracing::warn!(
                                error = %loss,
                                "the lock was lost before its release, but the response was finished: it is delivered"
                            );
                        }
                        match value.as_ref().ok().and_then(U::refusal) {
                            None => break value,
                            // The response is dropped before the answer, and the lock with it.
                            Some(refusal) => {
                                drop(value);
                                State::refused(take_once(reply), refusal)
                            }
                        }
                    }
                    cancelled => match cancelled.into_result() {
                        Ok(value) => break value,
                        Err(loss) => State::refused(take_once(reply), loss.into()),
                    },
                },
                StateProj::Refused { refusal } => {
                    // A refusal by a cap awaits nothing else: without this, a loop of refused calls would never yield.
                    ready!(coop::poll_proceed(cx)).made_progress();
                    let (reply, refusal) = take_once(refusal);
                    refusal::log(&refusal);
                    break reply.reply(refusal);
                }
                StateProj::Done => panic!("{POLLED_AFTER_COMPLETE}"),
            };
            state.set(next);
        };
        state.set(State::Done);
        Poll::Ready(response)
    }
}

/// The panic of a future that is polled again, in the words of tower's futures. `Poll::Pending` would be a hang, because
/// nothing would wake the task.
const POLLED_AFTER_COMPLETE: &str = "polled after complete";

/// Takes what a future needs once.
///
/// # Panics
/// If it has been taken already: the future was polled after it had completed or panicked.
#[track_caller]
pub(crate) fn take_once<T>(slot: &mut Option<T>) -> T {
    slot.take().expect(POLLED_AFTER_COMPLETE)
}

impl<S, Request, R, U> fmt::Debug for ResponseFuture<S, Request, R, U>
where
    S: Service<Request>,
    U: HoldUntil<S, Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Finding { .. } => "Finding",
            State::Unlocked { .. } => "Unlocked",
            State::Waiting { .. } => "Waiting",
            State::Holding { .. } => "Holding",
            State::Refused { .. } => "Refused",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
