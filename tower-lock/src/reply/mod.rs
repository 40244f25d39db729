//! What a refused request is answered with.

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

/// Turns a [`Refusal`] into what the service returns.
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
    /// Whatever the reply chooses to fail with. The replies for HTTP and gRPC never do.
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
