//! The reply for gRPC.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::refusal::{Refusal, RefusalKind};
use crate::reply::Reply;

/// A reply with a gRPC status, in a response that consists of trailers only, as `tonic::Status` makes it. It needs a
/// body that is `Default`, such as tonic's or axum's.
///
/// | refusal | gRPC status |
/// |---|---|
/// | `Busy`, `WaitedOut`, `Lost` | `ABORTED` |
/// | `Overloaded`, `ClientOverloaded` | `RESOURCE_EXHAUSTED` |
/// | `Unavailable` | `UNAVAILABLE` |
/// | `BadKey` | `INVALID_ARGUMENT` |
/// | `LostCompleted`, `Misconfigured` | `INTERNAL` |
///
/// Where a retry can help, `grpc-retry-pushback-ms` says when, as `Retry-After` does for HTTP. Clients that retry by
/// their service config obey it. A client-side deadline bounds the whole call, waiting for the lock included.
///
/// ```
/// # use lock_runtime::LockManager;
/// use tower_lock::{GrpcStatus, LockLayer, RequestKey};
///
/// # let locks = LockManager::in_memory();
/// let account = RequestKey::new("transfer").header("x-account");
/// let layer = LockLayer::from_key(locks, account).reply(GrpcStatus);
/// # drop(layer);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcStatus;

/// The header that tells a client that retries by its service configuration when to do so.
pub(crate) const PUSHBACK: &str = "grpc-retry-pushback-ms";

const INVALID_ARGUMENT: u16 = 3;
const RESOURCE_EXHAUSTED: u16 = 8;
const ABORTED: u16 = 10;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// `Percent-Encoded` of the protocol: 0x20 to 0x7e stay as they are, except `%`.
const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

pub(crate) fn code(kind: RefusalKind) -> u16 {
    match kind {
        RefusalKind::Busy | RefusalKind::WaitedOut | RefusalKind::Lost => ABORTED,
        RefusalKind::Overloaded | RefusalKind::ClientOverloaded => RESOURCE_EXHAUSTED,
        RefusalKind::Unavailable => UNAVAILABLE,
        RefusalKind::BadKey => INVALID_ARGUMENT,
        RefusalKind::LostCompleted | RefusalKind::Misconfigured => INTERNAL,
    }
}

impl<B, E> Reply<Response<B>, E> for GrpcStatus
where
    B: Default,
{
    fn reply(&self, refusal: Refusal) -> Result<Response<B>, E> {
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", code(refusal.kind()).into());
        // The protocol asks for this encoding, which leaves only visible ASCII and spaces.
        let detail = utf8_percent_encode(refusal.detail(), MESSAGE).to_string();
        if let Ok(detail) = HeaderValue::try_from(detail) {
            headers.insert("grpc-message", detail);
        }
        if let Some(millis) = refusal.pushback_millis() {
            headers.insert(PUSHBACK, millis.into());
        }
        Ok(response)
    }
}
