//! The attribute on axum handlers, with the other attributes that people put there, in either order.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{Request, StatusCode};
use lock_runtime::test_util::error;
use lock_runtime::{Lease, LockError, LockManager, LostReason, ShutdownCause, distributed_lock};
use tower::ServiceExt;
use tower_lock::{HeldLease, LockLayer, Refusal, RefusalKind, RequestKey};

use crate::support::eventually;

fn refused(error: LockError) -> Response {
    Refusal::from(error).into_response()
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

#[distributed_lock(key = "order:{id}", manager = locks, guard = lease, wait = "0s", map_err = refused)]
#[axum::debug_handler]
async fn leased_below(State(locks): State<LockManager>, Path(id): Path<u64>) -> Response {
    assert!(lease.is_held());
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
        .route("/leased/below/{id}", get(leased_below))
        .route("/traced/above/{id}", get(traced_above))
        .route("/traced/below/{id}", get(traced_below))
        .with_state(locks.clone());
    let answer = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await;
        (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
    };
    let _guard = locks.mutex("order:7").acquire().await.unwrap();
    for path in [
        "checked/above",
        "checked/below",
        "leased/below",
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

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
    lines: Vec<u64>,
}

#[distributed_lock(key = "order:{order.id}", manager = locks, wait = "0s")]
async fn create(
    State(locks): State<LockManager>,
    Json(order): Json<Order>,
) -> Result<String, Refusal> {
    let held = locks.inspect(format!("order:{}", order.id)).await?.held;
    Ok(format!("{held} {}", order.lines.len()))
}

#[tokio::test]
async fn a_handler_is_locked_by_a_field_of_its_json_body() {
    let locks = LockManager::in_memory();
    let app = Router::new()
        .route("/orders", post(create))
        .with_state(locks.clone());
    let send = async |body: &'static str| {
        let request = Request::post("/orders").header("content-type", "application/json");
        let request = request.body(Body::from(body)).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await;
        (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
    };
    let guard = locks.mutex("order:17").acquire().await.unwrap();
    assert_eq!(send(r#"{ "id": 17, "lines": [1] }"#).await.0, 423);
    let other = send(r#"{ "id": 18, "lines": [1, 2] }"#).await;
    assert_eq!(other, (200, "true 2".to_owned()));
    // A body that is not an order asks for no lock.
    assert_eq!(send(r#"{ "id": 17 }"#).await.0, 422);
    guard.release().await.unwrap();
    let free = send(r#"{ "id": 17, "lines": [1] }"#).await;
    assert_eq!(free, (200, "true 1".to_owned()));
}

#[tokio::test]
async fn a_route_that_is_added_after_the_layer_is_not_locked() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("order:17").acquire().await.unwrap();
    let key = RequestKey::new("order").path_segment(1);
    let layer = LockLayer::from_key(locks, key).wait(Duration::ZERO);
    let app = Router::new()
        .route("/before/{id}", post(async || ()))
        .layer(layer)
        .route("/after/{id}", post(async || ()));
    assert_eq!(answer(&app, "/before/17").await.0, StatusCode::LOCKED);
    assert_eq!(answer(&app, "/after/17").await.0, StatusCode::OK);
}

#[distributed_lock(key = "a test", manager = LockManager::in_memory(), guard = lease)]
#[tokio::test(start_paused = true)]
async fn the_attribute_works_above_a_test() -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(lease.is_held());
    Ok(())
}

async fn answer(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::post(path).body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

async fn token(HeldLease(lease): HeldLease) -> String {
    assert!(lease.is_held());
    format!("{} {}", lease.name(), lease.fencing_token().unwrap().get())
}

#[tokio::test]
async fn a_handler_has_the_lease_of_its_layer() {
    let locks = LockManager::in_memory();
    let app = Router::new()
        .route("/orders/{id}", post(token))
        .route(
            "/maybe/{id}",
            post(async |lease: Option<HeldLease>| lease.is_some().to_string()),
        )
        .layer(LockLayer::from_key(
            locks.clone(),
            RequestKey::new("order").query("lock").optional(),
        ));
    let (_, first) = answer(&app, "/orders/1?lock=17").await;
    let (_, next) = answer(&app, "/orders/1?lock=17").await;
    let tokens = [&first, &next].map(|text| text.strip_prefix("order:17 ").unwrap());
    let [first, next] = tokens.map(|token| token.parse::<u64>().unwrap());
    assert!(first < next, "{first} {next}");
    assert_eq!(answer(&app, "/maybe/1?lock=1").await.1, "true");
    assert_eq!(answer(&app, "/maybe/1").await.1, "false");
    let (status, body) = answer(&app, "/orders/1").await;
    assert_eq!((status, &*body), (StatusCode::INTERNAL_SERVER_ERROR, ""));
}

#[tokio::test]
async fn what_a_handler_spawns_has_the_lease_only_under_its_scope() {
    let app = Router::new()
        .route(
            "/{id}",
            post(async |HeldLease(lease): HeldLease| {
                let with = lease.scope(async { Lease::current().is_some() });
                let with = tokio::spawn(with).await.unwrap();
                let without = tokio::spawn(async { Lease::current().is_some() });
                format!("{with} {}", without.await.unwrap())
            }),
        )
        .layer(LockLayer::from_key(
            LockManager::in_memory(),
            RequestKey::new("order").path_segment(0),
        ));
    assert_eq!(answer(&app, "/17").await.1, "true false");
    assert!(Lease::current().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lock_error_is_answered_as_the_layer_answers() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("a").acquire().await.unwrap();
    let mine = locks.clone();
    let by_hand = async move |wait: u64| {
        let request = mine.mutex("a").wait(Duration::from_secs(wait));
        request.acquire().await.map_err(Refusal::from).map(drop)
    };
    let (at_once, later) = (by_hand.clone(), by_hand);
    let key = |_: &Request<Body>| Some("a");
    let layered = |wait| LockLayer::new(locks.clone(), key).wait(Duration::from_secs(wait));
    let app = Router::new()
        .route("/hand/0", post(async move || at_once(0).await))
        .route("/hand/1", post(async move || later(1).await))
        .route("/layer/0", post(async || ()).layer(layered(0)))
        .route("/layer/1", post(async || ()).layer(layered(1)));
    for (wait, status) in [(0, 423), (1, 503)] {
        let by_hand = answer(&app, &format!("/hand/{wait}")).await;
        assert_eq!(by_hand.0, status);
        assert_eq!(by_hand, answer(&app, &format!("/layer/{wait}")).await);
    }
    let second = Duration::from_secs(1);
    for (error, status, again) in [
        (
            error::lost("a", second, LostReason::Expired, false),
            503,
            true,
        ),
        // The work is done: a client that repeats it does it twice.
        (
            error::lost("a", second, LostReason::Expired, true),
            500,
            false,
        ),
        (
            error::shutting_down("a", ShutdownCause::Shutdown),
            503,
            true,
        ),
        (
            error::shutting_down("a", ShutdownCause::RuntimeEnded),
            500,
            false,
        ),
    ] {
        let refusal = Refusal::from(error);
        assert_eq!(refusal.kind().status(), status, "{refusal:?}");
        assert_eq!(refusal.retry_after().is_some(), again, "{refusal:?}");
    }
    let unset = locks.semaphore("none").permits(1).acquire().await;
    let refusal = Refusal::from(unset.unwrap_err());
    assert_eq!(refusal.kind(), RefusalKind::Misconfigured);
    assert!(refusal.retry_after().is_none() && refusal.error().is_some());
    let status = tonic::Status::from(refusal);
    assert_eq!(status.code(), tonic::Code::Internal);
    assert!(!status.message().contains("none"), "{status:?}");
    let busy = locks.mutex("a").wait(Duration::ZERO).acquire().await;
    let status = tonic::Status::from(Refusal::from(busy.unwrap_err()));
    assert_eq!(status.code(), tonic::Code::Aborted);
    assert!(status.metadata().contains_key("grpc-retry-pushback-ms"));
}
