//! What can go wrong in the site, and what a client is told of it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use examples::SqliteError;
use lock_runtime::LockError;
use redis::RedisError;

/// The reason why a request failed. `#[distributed_lock]` needs the conversion from `LockError`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The client asked for something that it cannot have.
    #[error("{1}")]
    Refused(StatusCode, &'static str),
    /// A lock was refused, or lost on the way.
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Database(#[from] SqliteError),
    #[error("a value in Redis is not what this site writes: {0}")]
    Value(#[from] serde_json::Error),
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        match self {
            Error::Refused(status, why) => (status, why).into_response(),
            // 423, 503 or 500, with `Retry-After` where it helps.
            Error::Lock(error) => tower_lock::Refusal::from(error).into_response(),
            Error::Redis(_) | Error::Database(_) | Error::Value(_) => {
                tracing::error!("{self}");
                let again = [(header::RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, again, "try again later").into_response()
            }
        }
    }
}
