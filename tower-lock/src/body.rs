//! The response body, until whose end the lock is held.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use lock_runtime::{Lease, LockError, LockGuard, Lost, Outcome, ScopeFuture};
use pin_project_lite::pin_project;

use crate::future::take_once;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Release = Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>;

pin_project! {
    /// A future that makes the call under the lock and passes the lock on to the body of the response.
    pub struct HoldBody<F> {
        // Declared before the guard, so that the call is dropped before the lock is released.
        #[pin]
        call: Option<ScopeFuture<F>>,
        guard: Option<LockGuard>,
        ended: Pin<Box<dyn Future<Output = ()> + Send>>,
        // The release of a lost hold, and the loss that the call was dropped for.
        release: Option<(Release, LockError)>,
    }
}

impl<F: Future> HoldBody<F> {
    pub(crate) fn new(guard: LockGuard, call: F) -> HoldBody<F> {
        HoldBody {
            call: Some(guard.scope(call)),
            ended: Box::pin(guard.ended()),
            guard: Some(guard),
            release: None,
        }
    }
}

impl<F, B, E> Future for HoldBody<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Outcome<Result<Response<HeldBody<B>>, E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(guard) = this.guard.as_ref() {
            // The result is not needed: the poll only makes sure that a loss wakes this task.
            let _ = this.ended.as_mut().poll(cx);
            let loss = guard.loss();
            if loss.is_none()
                && let Some(call) = this.call.as_mut().as_pin_mut()
            {
                let response = ready!(call.poll(cx));
                this.call.set(None);
                // If the call failed, the guard is dropped, which releases the lock.
                let guard = take_once(this.guard);
                let value =
                    response.map(|response| response.map(|body| HeldBody::locked(body, guard)));
                return Poll::Ready(Outcome::Completed { value, loss: None });
            }
            this.call.set(None);
            let guard = take_once(this.guard);
            *this.release = loss.map(|loss| (Box::pin(guard.release()) as Release, loss));
        }
        if let Some((release, _)) = this.release {
            // What the release says is no news: it ends with the loss.
            let _ = ready!(release.as_mut().poll(cx));
        }
        let (_, loss) = take_once(this.release);
        Poll::Ready(Outcome::Cancelled { loss })
    }
}

pin_project! {
    /// A response body that ends under the lock of its request: see
    /// [`LockLayer::until_body_end`](crate::LockLayer::until_body_end).
    ///
    /// The lock is released when the last frame has been taken, or when the body is dropped. If it is lost before,
    /// the inner body is dropped and the body ends with an error, so that no client takes it for complete.
    ///
    /// See the example of [`UntilBodyEnd`](crate::types::UntilBodyEnd).
    pub struct HeldBody<B> {
        #[pin]
        body: Option<B>,
        hold: Option<BodyHold>,
    }
}

struct BodyHold {
    // Nothing else keeps it: what drops the hold drops the guard, which then releases in the background.
    _guard: Arc<Mutex<Option<LockGuard>>>,
    lease: Lease,
    lost: <Lost as IntoFuture>::IntoFuture,
}

impl BodyHold {
    fn new(guard: LockGuard) -> BodyHold {
        let lease = guard.lease();
        let ended = guard.ended();
        let slot = Arc::new(Mutex::new(Some(guard)));
        // Nothing polls the body while its client does not read. The guard must be dropped even then once the hold
        // is lost, or the store would keep the key for the rest of its lease.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let slot = Arc::downgrade(&slot);
            runtime.spawn(async move {
                ended.await;
                // Nothing panics while the mutex is locked, so its poison means nothing.
                let guard = slot
                    .upgrade()
                    .and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
                drop(guard);
            });
        }
        BodyHold {
            lost: lease.lost().into_future(),
            lease,
            _guard: slot,
        }
    }
}

impl<B> HeldBody<B> {
    pub(crate) fn unlocked(body: B) -> HeldBody<B> {
        HeldBody {
            body: Some(body),
            hold: None,
        }
    }
}

impl<B: Body> HeldBody<B> {
    fn locked(body: B, guard: LockGuard) -> HeldBody<B> {
        let hold = (!body.is_end_stream()).then(|| BodyHold::new(guard));
        HeldBody {
            body: Some(body),
            hold,
        }
    }
}

impl<B> Body for HeldBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let Some(hold) = this.hold.as_mut() else {
            return body.poll_frame(cx).map_err(Into::into);
        };
        if hold.lost.as_mut().poll(cx).is_ready() || !hold.lease.is_held() {
            tracing::warn!(
                "the lock was lost before the end of a response body: the body is cut off"
            );
            this.body.set(None);
            *this.hold = None;
            let error = "the lock of this response was lost before the end of its body";
            return Poll::Ready(Some(Err(error.into())));
        }
        // The body is polled in the hold's scope, as the handler was.
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
        let frame = ready!(pin!(hold.lease.scope(frame)).poll(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            // The body goes first: what it owns may need the lock.
            this.body.set(None);
            *this.hold = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl<B: From<String>> From<String> for HeldBody<B> {
    fn from(text: String) -> HeldBody<B> {
        HeldBody::unlocked(B::from(text))
    }
}

impl<B: Default> Default for HeldBody<B> {
    fn default() -> HeldBody<B> {
        HeldBody::unlocked(B::default())
    }
}

impl<B> fmt::Debug for HeldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody")
            .field("locked", &self.hold.is_some())
            .finish_non_exhaustive()
    }
}
