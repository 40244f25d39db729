//! The answers to refused requests.

#[cfg(feature = "axum")]
mod axum;
mod error;
mod grpc;
mod http;
#[cfg(feature = "tonic")]
mod tonic;

pub use error::AsError;
pub use grpc::GrpcStatus;
pub use http::{EmptyBody, ProblemJson};

use crate::refusal::Refusal;

/// A reply, which turns a [`Refusal`] into what the service returns.
///
/// The answer is the inner service's own response or error: a service in a [`LockLayer`](crate::LockLayer) has the
/// types it had without. Closures `Fn(Refusal) -> Result<Response, Error>` are replies, too.
///
/// | reply | answers with | for services whose |
/// |---|---|---|
/// | [`ProblemJson`], the default | an HTTP response with a problem document | response body is `From<String>`, such as axum's or `Full<Bytes>` |
/// | [`EmptyBody`] | the same status and `Retry-After`, no body | response body is `Default` |
/// | [`GrpcStatus`] | a gRPC status in the headers of an empty response, as tonic answers | response body is `Default`, such as tonic's or axum's |
/// | [`AsError`] | the refusal as the service's error | error is `From<Refusal>`, such as `tower::BoxError` |
///
/// ```
/// use http::{Request, Response};
/// use lock_runtime::test_util::error;
/// use tower_lock::{EmptyBody, ProblemJson, Refusal, Reply};
///
/// let refusal = || Refusal::from(error::unavailable("order:17", "connection reset"));
/// let answer: Result<Response<String>, std::io::Error> = ProblemJson.reply(refusal());
/// assert!(answer?.body().contains("temporarily unavailable"));
/// let answer: Result<Response<String>, std::io::Error> = EmptyBody.reply(refusal());
/// assert_eq!(answer?.status(), 503);
///
/// // A closure is a reply, too: `LockLayer::reply` takes either.
/// let teapot = |_: Refusal| Ok::<_, std::io::Error>(Response::builder().status(418).body(()).unwrap());
/// assert_eq!(teapot.reply(refusal())?.status(), 418);
/// # Ok::<_, std::io::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer with `{Response}`",
    label = "this service's refusals need another reply",
    note = "choose one with `LockLayer::reply`: `EmptyBody` needs only a body that is `Default`, and a closure \
            `|refusal: Refusal| -> Result<Response, Error>` serves any service"
)]
pub trait Reply<Response, Error> {
    /// Answers a refused request.
    ///
    /// # Errors
    /// Returns the error that the reply chooses. The replies for HTTP and gRPC never fail.
    fn reply(&self, refusal: Refusal) -> Result<Response, Error>;
}

impl<F, Response, Error> Reply<Response, Error> for F
where
    F: Fn(Refusal) -> Result<Response, Error>,
{
    fn reply(&self, refusal: Refusal) -> Result<Response, Error> {
        self(refusal)
    }
}
