//! The end of a request's lock.

use http::{Response, StatusCode};
use lock_runtime::{LockGuard, Outcome, ProtectFuture};
use tower_service::Service;

use crate::body::{HeldBody, HoldBody};
use crate::call::Call;
use crate::refusal::Refusal;

/// The lock is held until the response future of the inner service is done. This is the default.
///
/// See the example of [`UntilBodyEnd`].
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilResponse;

/// The lock is held until the response body has ended, too: see
/// [`LockLayer::until_body_end`](crate::LockLayer::until_body_end).
///
/// ```
/// # use lock_runtime::LockManager;
/// # use std::time::Duration;
/// use tower_lock::{LockLayer, ProblemJson, RequestKey, types::UntilBodyEnd};
///
/// # let locks = LockManager::in_memory();
/// /// In the type of a field; without `until_body_end`, it is `UntilResponse`.
/// struct Layers {
///     exports: LockLayer<RequestKey, ProblemJson, UntilBodyEnd>,
/// }
///
/// let export = LockLayer::from_key(locks, RequestKey::new("export").path());
/// let layers = Layers { exports: export.until_body_end(Duration::from_secs(60)) };
/// # drop(layers.exports);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilBodyEnd;

/// The moment until which a layer holds its locks: [`UntilResponse`] or [`UntilBodyEnd`]. No other type can implement
/// this trait.
///
/// See the example of [`UntilBodyEnd`].
pub trait HoldUntil<S: Service<Request>, Request> {
    /// The response of the service.
    #[doc(hidden)]
    type Response;
    /// The future that makes the call under the lock, and then releases the lock or passes it on to the body.
    #[doc(hidden)]
    type Holding: Future<Output = Outcome<Result<Self::Response, S::Error>>>;

    // Nobody else can name the call.
    #[doc(hidden)]
    fn hold(guard: LockGuard, call: Call<S, Request>) -> Self::Holding;

    /// Returns the response to a request that needed no lock.
    #[doc(hidden)]
    fn unlocked(response: S::Response) -> Self::Response;

    /// Returns the refusal that replaces a response for whose end the lock cannot be held.
    #[doc(hidden)]
    fn refusal(response: &Self::Response) -> Option<Refusal>;
}

impl<S, Request> HoldUntil<S, Request> for UntilResponse
where
    S: Service<Request>,
{
    type Response = S::Response;
    type Holding = ProtectFuture<Call<S, Request>>;

    fn hold(guard: LockGuard, call: Call<S, Request>) -> Self::Holding {
        guard.protect(call)
    }

    fn unlocked(response: S::Response) -> S::Response {
        response
    }

    fn refusal(_: &S::Response) -> Option<Refusal> {
        None
    }
}

impl<S, Request, B> HoldUntil<S, Request> for UntilBodyEnd
where
    S: Service<Request, Response = Response<B>>,
    B: http_body::Body,
{
    type Response = Response<HeldBody<B>>;
    type Holding = HoldBody<Call<S, Request>>;

    fn hold(guard: LockGuard, call: Call<S, Request>) -> Self::Holding {
        HoldBody::new(guard, call)
    }

    fn unlocked(response: Response<B>) -> Self::Response {
        response.map(HeldBody::unlocked)
    }

    fn refusal(response: &Self::Response) -> Option<Refusal> {
        (response.status() == StatusCode::SWITCHING_PROTOCOLS).then(|| {
            Refusal::misconfigured(
                "an upgraded connection, such as a WebSocket, cannot be held under the lock of a layer with \
                 `until_body_end`: acquire the lock in the task that serves the connection",
            )
        })
    }
}
