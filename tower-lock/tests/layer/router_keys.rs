//! The keys that are made from what axum's router knows.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use lock_runtime::LockManager;
use tower::ServiceExt;
use tower_lock::{LockLayer, RequestKey};

async fn status(app: &Router, uri: &str) -> StatusCode {
    let request = Request::get(uri).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test(start_paused = true)]
async fn a_path_parameter_is_decoded_and_found_in_a_nested_router() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("order:acme:17").acquire().await.unwrap();
    let key = RequestKey::new("order")
        .path_param("tenant")
        .path_param("id");
    let layer = LockLayer::from_key(locks, key).wait(Duration::ZERO);
    let orders = Router::new()
        .route("/orders/{id}", get(async || "served"))
        .route("/health", get(async || "served"))
        .layer(layer);
    let app = Router::new().nest("/{tenant}", orders);
    assert_eq!(status(&app, "/acme/orders/17").await, StatusCode::LOCKED);
    assert_eq!(
        status(&app, "/%61cme/orders/%317").await,
        StatusCode::LOCKED
    );
    assert_eq!(status(&app, "/other/orders/17").await, StatusCode::OK);
    assert_eq!(status(&app, "/acme/health").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_matched_path_is_one_lock_for_its_route() {
    let locks = LockManager::in_memory();
    let name = lock_runtime::LockName::from("route:").with("/orders/{id}");
    let _guard = locks.mutex(name).acquire().await.unwrap();
    let layer = LockLayer::from_key(locks, RequestKey::new("route").matched_path());
    let app = Router::new()
        .route("/orders/{id}", get(async || "served"))
        .route("/other", get(async || "served"))
        .layer(layer.wait(Duration::ZERO));
    assert_eq!(status(&app, "/orders/1").await, StatusCode::LOCKED);
    assert_eq!(status(&app, "/orders/2").await, StatusCode::LOCKED);
    assert_eq!(status(&app, "/other").await, StatusCode::OK);
    assert_eq!(status(&app, "/none").await, StatusCode::NOT_FOUND);
}
