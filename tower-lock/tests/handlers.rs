//! The attribute on axum handlers, with the other attributes that people put there, in either order.
#![allow(missing_docs)]

mod support;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Request, StatusCode};
use lock_runtime::{LockError, LockManager, distributed_lock};
use support::eventually;
use tower::ServiceExt;

fn refused(error: LockError) -> Response {
    match error {
        LockError::Busy { .. } => StatusCode::LOCKED.into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn held(locks: &LockManager, id: u64) -> Response {
    let held = locks.inspect(&*format!("order:{id}")).await.unwrap().held;
    held.to_string().into_response()
}

#[axum::debug_handler]
#[distributed_lock(key = "order:{id}", manager = locks, wait = "0s", map_err = refused)]
async fn checked_above(State(locks): State<LockManager>, Path(id): Path<u64>) -> Response {
    held(&locks, id).await
}

#[distributed_lock(key = "order:{id}", manager = locks, wait = "0s", map_err = refused)]
#[axum::debug_handler]
async fn checked_below(State(locks): State<LockManager>, Path(id): Path<u64>) -> Response {
    held(&locks, id).await
}

#[tracing::instrument(skip_all, fields(id))]
#[distributed_lock(key = "order:{id}", manager = locks, wait = "0s", map_err = refused)]
async fn traced_above(State(locks): State<LockManager>, Path(id): Path<u64>) -> Response {
    held(&locks, id).await
}

#[distributed_lock(key = "order:{id}", manager = locks, wait = "0s", map_err = refused)]
#[tracing::instrument(skip_all)]
async fn traced_below(State(locks): State<LockManager>, Path(id): Path<u64>) -> Response {
    held(&locks, id).await
}

#[tokio::test]
async fn debug_handler_and_instrument_may_stand_on_either_side() {
    let locks = LockManager::in_memory();
    let app = Router::new()
        .route("/checked/above/{id}", get(checked_above))
        .route("/checked/below/{id}", get(checked_below))
        .route("/traced/above/{id}", get(traced_above))
        .route("/traced/below/{id}", get(traced_below))
        .with_state(locks.clone());
    let answer = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 100).await;
        (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
    };
    let _guard = locks.mutex("order:7").acquire().await.unwrap();
    for path in [
        "checked/above",
        "checked/below",
        "traced/above",
        "traced/below",
    ] {
        let (status, body) = answer(&format!("/{path}/8")).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "true"), "{path}");
        eventually("it is released", async || {
            !locks.inspect("order:8").await.unwrap().held
        })
        .await;
        let (status, _) = answer(&format!("/{path}/7")).await;
        assert_eq!(status, StatusCode::LOCKED, "{path}");
    }
}

#[distributed_lock(key = "a test", manager = LockManager::in_memory(), guard = lease)]
#[tokio::test(start_paused = true)]
async fn the_attribute_works_above_a_test() -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(lease.is_held());
    Ok(())
}
