//! The layer's lease, for axum's handlers.

use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use lock_runtime::Lease;

/// An extractor for the lease of the lock that a [`LockLayer`](crate::LockLayer) holds around the handler. If there are
/// several locks around it, it is the lease of the innermost one that is held.
///
/// If the innermost layer needs no lock for a request, because its key names none or because it is an `OPTIONS` under
/// `read_write`, the lease is that of an outer lock: look at its name before you use its token. If there is no outer lock,
/// there is no lease: take an `Option<HeldLease>` where that may happen. Otherwise such a request is answered with 500 and logged
/// as a `tracing` error, as is every request to a route that lacks the layer.
///
/// ```
/// use axum::{Router, routing::post};
/// use lock_runtime::LockManager;
/// use tower_lock::{HeldLease, LockLayer, RequestKey};
///
/// async fn pay(HeldLease(lease): HeldLease) -> String {
///     // What the database compares with the last token that it has seen.
///     format!("{:?}", lease.fencing_token())
/// }
///
/// let order = RequestKey::new("order").path_segment_as::<u64>(1);
/// let app: Router = Router::new()
///     .route("/orders/{id}", post(pay))
///     .route_layer(LockLayer::from_key(LockManager::in_memory(), order));
/// # drop(app);
/// ```
#[derive(Clone, Debug)]
pub struct HeldLease(pub Lease);

impl<S: Sync> FromRequestParts<S> for HeldLease {
    type Rejection = NoLease;

    async fn from_request_parts(_parts: &mut Parts, _state: &S) -> Result<HeldLease, NoLease> {
        Lease::current().map(HeldLease).ok_or(NoLease)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for HeldLease {
    type Rejection = NoLease;

    async fn from_request_parts(
        _parts: &mut Parts,
        _state: &S,
    ) -> Result<Option<HeldLease>, NoLease> {
        Ok(Lease::current().map(HeldLease))
    }
}

/// The rejection of [`HeldLease`]: the handler asks for a lease, but runs under no lock. It is answered with 500.
///
/// See the example of [`HeldLease`].
#[derive(Clone, Copy, Debug)]
pub struct NoLease;

impl fmt::Display for NoLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a handler asks for the lease of its lock and runs under none: its route lacks the `LockLayer`, or the request \
             needed no lock (then take an `Option<HeldLease>`)",
        )
    }
}

impl std::error::Error for NoLease {}

impl IntoResponse for NoLease {
    fn into_response(self) -> Response {
        tracing::error!("{self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
