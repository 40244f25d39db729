//! Drives a body that runs under a hold, whatever the body is.
//!
//! Each annotated function is a type of its own, and what is generic over it is compiled again for each. So all that
//! does not depend on the body is here, once: generic code has only the body's place and one call to make.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::hold::{Handles, Nest};
use crate::protect::Outcome;
use crate::release::{Ending, Failure};
use crate::values::LockError;

/// A body as seen from here: its value stays where it is.
pub(crate) trait Body {
    /// Polls the body. Once it is ready it is gone, and its value is kept.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;

    /// Drops the body in place, if it is still there.
    fn end(self: Pin<&mut Self>);
}

pin_project! {
    /// The place of a body, then of its value: never of both.
    #[project = BodyOrValueProj]
    pub(crate) enum BodyOrValue<F: Future> {
        Body {
            #[pin]
            body: F,
        },
        Value {
            value: Option<F::Output>,
        },
    }
}

impl<F: Future> BodyOrValue<F> {
    /// The value, once.
    pub(crate) fn take(self: Pin<&mut Self>) -> Option<F::Output> {
        match self.project() {
            BodyOrValueProj::Body { .. } => None,
            BodyOrValueProj::Value { value } => value.take(),
        }
    }
}

impl<F: Future> Body for BodyOrValue<F> {
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let BodyOrValueProj::Body { body } = self.as_mut().project() {
            let value = Some(ready!(body.poll(cx)));
            self.set(BodyOrValue::Value { value });
        }
        Poll::Ready(())
    }

    fn end(mut self: Pin<&mut Self>) {
        if let BodyOrValueProj::Body { .. } = self.as_mut().project() {
            self.set(BodyOrValue::Value { value: None });
        }
    }
}

/// Decides what happens to a body whose hold is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped.
    Cancel,
    /// It goes on to its end, and its value counts.
    Finish,
    /// It is dropped; if it was complete before the loss was known, its value does not count.
    Error,
}

pin_project! {
    /// A guard's handles on behalf of a body: watches for loss, sets the call chain, releases in the end.
    ///
    /// The loss is looked for before every poll of the body, so a process that was frozen does not go on when it
    /// wakes. A future that has this beside a body drops the body first.
    pub(crate) struct Driver {
        pub(super) handles: Option<Handles>,
        #[pin]
        over: OwnedNotified,
        // The body is made in it, too: what is asked for meanwhile is nested.
        pub(crate) nest: Nest,
        pub(crate) on_lost: OnLost,
        // The loss that the body was dropped for. Boxed: it is rare, and would have its place in every future.
        loss: Option<Box<LockError>>,
        ending: Option<Ending>,
    }
}

impl Driver {
    pub(crate) fn new(mut handles: Handles) -> Driver {
        // A shutdown waits until they have ended: a loss drops the body.
        handles.count_as(|life| &life.under_way);
        Driver {
            over: handles.held().over_signal(),
            nest: Nest::new(handles.call_chain()),
            handles: Some(handles),
            on_lost: OnLost::Cancel,
            loss: None,
            ending: None,
        }
    }

    /// Runs the body to its end, or to the loss of the hold, and releases. The body has been dropped, in its place,
    /// before the release and before anything is returned.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut body: Pin<&mut (dyn Body + '_)>,
    ) -> Poll<Outcome<()>> {
        let mut this = self.project();
        // The handles stay where they are: should the body panic, they are dropped after what is left of the body.
        if let Some(handles) = this.handles.as_ref() {
            let held = handles.held();
            // This makes sure that a loss wakes this task. The signal is the tenure's, so it may still be raised for the turn
            // before this one.
            while this.over.as_mut().poll(cx).is_ready() && held.loss().is_none() {
                this.over.set(held.over_signal());
            }
            let finish = *this.on_lost == OnLost::Finish;
            if !finish && let Some(loss) = held.lost_error() {
                *this.loss = Some(Box::new(loss));
                body.as_mut().end();
            } else {
                let mut polled = Poll::Pending;
                this.nest.enter(&mut || polled = body.as_mut().poll(cx));
                ready!(polled);
            }
            let handles = this.handles.take();
            *this.ending = handles.map(|handles| handles.release(Failure::ToLog));
        }
        let released = match this.ending {
            Some(ending) => ready!(Pin::new(ending).poll(cx)),
            None => Ok(()),
        };
        *this.ending = None;
        Poll::Ready(match this.loss.take() {
            Some(loss) => Outcome::Cancelled { loss: *loss },
            None => Outcome::Completed {
                value: (),
                loss: released.err().and_then(late_loss),
            },
        })
    }

    /// The same, for who wants either the body's value or the loss. A completed body whose hold was lost before its
    /// release counts, with a warning in the log, unless [`OnLost::Error`] says otherwise.
    pub(crate) fn poll_value(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        body: Pin<&mut (dyn Body + '_)>,
    ) -> Poll<Result<(), LockError>> {
        let on_lost = self.on_lost;
        Poll::Ready(match ready!(self.poll(cx, body)) {
            Outcome::Completed {
                loss: Some(loss), ..
            } if on_lost == OnLost::Error => Err(loss),
            outcome => outcome.into_result(),
        })
    }
}

/// Returns the loss that a release found after the body had completed.
pub(crate) fn late_loss(mut error: LockError) -> Option<LockError> {
    let LockError::Lost { completed, .. } = &mut error else {
        return None;
    };
    *completed = true;
    Some(error)
}

/// A future that was ready was polled again, and has nothing left to give.
#[cold]
pub(crate) fn polled_after_completion() -> ! {
    panic!("a future of a lock was polled after completion");
}
