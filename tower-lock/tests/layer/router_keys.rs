//! The keys that are made from what axum's router knows.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use lock_runtime::LockManager;
use tower::{Layer, ServiceExt};
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
        .layer(layer);
    let app = Router::new().nest("/{tenant}", orders);
    assert_eq!(status(&app, "/acme/orders/17").await, StatusCode::LOCKED);
    assert_eq!(
        status(&app, "/%61cme/orders/%317").await,
        StatusCode::LOCKED
    );
    assert_eq!(status(&app, "/other/orders/17").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_typed_path_parameter_is_what_the_handler_parses() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("order:17").acquire().await.unwrap();
    let key = RequestKey::new("order").path_param_as::<u64>("id");
    let app = Router::new()
        .route(
            "/orders/{id}",
            get(async |Path(id): Path<u64>| id.to_string()),
        )
        .route_layer(LockLayer::from_key(locks, key).wait(Duration::ZERO));
    for spelling in ["17", "017", "+17", "%317"] {
        let answer = status(&app, &format!("/orders/{spelling}")).await;
        assert_eq!(answer, StatusCode::LOCKED, "{spelling}");
    }
    assert_eq!(status(&app, "/orders/18").await, StatusCode::OK);
    assert_eq!(status(&app, "/orders/x").await, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn a_segment_below_nest_is_counted_in_the_whole_path() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("order:7").acquire().await.unwrap();
    let _path = locks.mutex("path:/api/orders/7").acquire().await.unwrap();
    for key in [
        RequestKey::new("order").path_segment(2),
        RequestKey::new("path").path(),
    ] {
        let layer = LockLayer::from_key(locks.clone(), key).wait(Duration::ZERO);
        let orders = Router::new()
            .route("/orders/{id}", get(async || "served"))
            .layer(layer);
        let app = Router::new().nest("/api", orders);
        assert_eq!(status(&app, "/api/orders/7").await, StatusCode::LOCKED);
        assert_eq!(status(&app, "/api/orders/8").await, StatusCode::OK);
    }
}

/// axum decodes the parameter of a wildcard as a whole: for the handler, both spellings are one file.
#[tokio::test(start_paused = true)]
async fn two_spellings_of_a_wildcard_have_no_two_names() {
    let file = || RequestKey::new("file");
    for (key, held, encoded) in [
        (file().path(), "file:/files/a/b", StatusCode::BAD_REQUEST),
        (file().path_segment(1), "file:a", StatusCode::BAD_REQUEST),
        (file().path_param("path"), "file:a%2Fb", StatusCode::LOCKED),
    ] {
        let locks = LockManager::in_memory();
        let _guard = locks.mutex(held).acquire().await.unwrap();
        let layer = LockLayer::from_key(locks, key).wait(Duration::ZERO);
        let app = Router::new()
            .route("/files/{*path}", get(async || "served"))
            .route_layer(layer);
        assert_eq!(
            status(&app, "/files/a/b").await,
            StatusCode::LOCKED,
            "{held}"
        );
        assert_eq!(status(&app, "/files/a%2Fb").await, encoded, "{held}");
        assert_eq!(status(&app, "/files/c").await, StatusCode::OK, "{held}");
    }
    // One segment stays one: this is a file of its own.
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("file:/files/a/b").acquire().await.unwrap();
    let app = Router::new()
        .route("/files/{name}", get(async || "served"))
        .route_layer(LockLayer::from_key(locks, file().path()).wait(Duration::ZERO));
    assert_eq!(status(&app, "/files/a%2Fb").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_part_impossible_in_its_route_is_500_and_a_missing_one_400() {
    let app = |key: RequestKey| {
        let layer = LockLayer::from_key(LockManager::in_memory(), key);
        Router::new()
            .route("/orders/{id}", get(async || "served"))
            .route("/files/{*path}", get(async || "served"))
            .layer(layer)
    };
    let key = || RequestKey::new("o");
    for (key, path, answer) in [
        (key().path_param("name"), "/orders/7", 500),
        (key().path_param("name").optional(), "/orders/7", 200),
        (key().path_param("id"), "/orders/7", 200),
        (key().path_param("id"), "/none", 400),
        (key().path_param("id"), "/orders/%ff", 400),
        (key().path_param("id").optional(), "/orders/%ff", 400),
        (key().matched_path(), "/none", 400),
        (key().path_segment(2), "/orders/7", 500),
        (key().path_segment(2).optional(), "/orders/7", 200),
        (key().path_segment(2), "/files/a", 400),
        (key().path_segment(2), "/files/a/b", 200),
        (key().path_segment(2), "/none", 400),
        (key().header("x-tenant"), "/orders/7", 400),
    ] {
        let case = format!("{key:?} {path}");
        assert_eq!(status(&app(key), path).await, answer, "{case}");
    }
    // The handler may read the one or the other.
    let layer = LockLayer::from_key(LockManager::in_memory(), key().path_param("id"));
    let twice = Router::new().route("/users/{id}", get(async || "served").layer(layer));
    let twice = Router::new().nest("/{id}", twice);
    assert_eq!(status(&twice, "/1/users/7").await, 400);
    // Around the whole router, the route is not known.
    let layer = LockLayer::from_key(LockManager::in_memory(), key().path_param("id"));
    let outside = layer.layer(Router::<()>::new().route("/orders/{id}", get(async || "served")));
    let request = Request::get("/orders/7").body(Body::empty()).unwrap();
    assert_eq!(outside.oneshot(request).await.unwrap().status(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_route_layer_leaves_paths_without_a_route_alone() {
    let layer = LockLayer::from_key(
        LockManager::in_memory(),
        RequestKey::new("o").path_param("id"),
    );
    let app = Router::new()
        .route("/orders/{id}", get(async || "served"))
        .route_layer(layer)
        .route("/health", get(async || "served"));
    assert_eq!(status(&app, "/orders/7").await, StatusCode::OK);
    assert_eq!(status(&app, "/health").await, StatusCode::OK);
    assert_eq!(status(&app, "/none").await, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_layer_on_methods_locks_no_other_method() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::from_key(locks.clone(), RequestKey::new("o").path_param("id"));
    let app = Router::new().route(
        "/orders/{id}",
        post(async || "served").route_layer(layer.wait(Duration::ZERO)),
    );
    let _guard = locks.mutex("o:7").acquire().await.unwrap();
    assert_eq!(
        status(&app, "/orders/7").await,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let served = Request::post("/orders/7").body(Body::empty()).unwrap();
    let served = app.oneshot(served).await.unwrap();
    assert_eq!(served.status(), StatusCode::LOCKED);
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
        .route_layer(layer.wait(Duration::ZERO));
    assert_eq!(status(&app, "/orders/1").await, StatusCode::LOCKED);
    assert_eq!(status(&app, "/orders/2").await, StatusCode::LOCKED);
    assert_eq!(status(&app, "/other").await, StatusCode::OK);
    assert_eq!(status(&app, "/none").await, StatusCode::NOT_FOUND);
}
