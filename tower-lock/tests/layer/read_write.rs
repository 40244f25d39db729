//! `read_write()`: requests that only read run side by side, others alone.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use lock_runtime::{LockManager, LockName};
use tower::{ServiceExt, service_fn};
use tower_lock::{LockLayer, RequestKey};

/// The number of requests that are inside, and the most that were inside at once.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    async fn serve(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends these requests at once, to a layer that waits, and returns how many at most were inside together.
async fn together(methods: &[Method]) -> usize {
    let inside = Arc::new(Inside::default());
    let layer = LockLayer::from_key(
        LockManager::in_memory(),
        RequestKey::new("order").path_segment(1),
    )
    .read_write();
    let served = inside.clone();
    let service = tower::ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(move |_: Request<()>| {
            let inside = served.clone();
            async move {
                inside.serve().await;
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        }));
    let mut calls = tokio::task::JoinSet::new();
    for method in methods {
        let request = Request::builder()
            .method(method)
            .uri("/orders/7")
            .body(())
            .unwrap();
        calls.spawn(service.clone().oneshot(request));
    }
    while let Some(response) = calls.join_next().await {
        assert_eq!(response.unwrap().unwrap().status(), StatusCode::OK);
    }
    inside.most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn gets_and_heads_of_one_key_run_side_by_side() {
    assert_eq!(together(&[Method::GET, Method::HEAD, Method::GET]).await, 3);
}

#[tokio::test(start_paused = true)]
async fn any_other_method_runs_alone() {
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(together(&[method.clone(), method.clone(), method]).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_excludes_readers() {
    let locks = LockManager::in_memory();
    let writing = locks
        .write(LockName::from("order:7"))
        .acquire()
        .await
        .unwrap();
    let layer = LockLayer::from_key(locks, RequestKey::new("order").path_segment(1))
        .max_waiters_per_client(4, RequestKey::new("client").header("x-client"))
        .read_write()
        .wait(Duration::ZERO);
    let service = tower::ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    let get = || Request::get("/orders/7").body(()).unwrap();
    let refused = service.clone().oneshot(get()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::LOCKED);
    writing.release().await.unwrap();
    assert_eq!(
        service.oneshot(get()).await.unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_found_later_knows_the_method_too() {
    let locks = LockManager::in_memory();
    let reading = locks.read("order:7").acquire().await.unwrap();
    let layer = LockLayer::from_async_key(locks, |_| {
        Box::pin(async { Some(LockName::from("order:7")) })
    })
    .read_write()
    .wait(Duration::ZERO);
    let service = tower::ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    let send = |method: Method| {
        let request = Request::builder().method(method).body(()).unwrap();
        service.clone().oneshot(request)
    };
    assert_eq!(send(Method::GET).await.unwrap().status(), StatusCode::OK);
    assert_eq!(
        send(Method::POST).await.unwrap().status(),
        StatusCode::LOCKED
    );
    reading.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_preflight_passes_beside_a_writer_and_without_a_key() {
    let locks = LockManager::in_memory();
    let _writer = locks.write("order:7").acquire().await.unwrap();
    let order = RequestKey::new("order").path_segment(1);
    let layer = LockLayer::from_key(locks, order)
        .read_write()
        .wait(Duration::ZERO);
    let client = RequestKey::new("client").header("x-client");
    let service = tower::ServiceBuilder::new()
        .layer(layer.max_waiters_per_client(0, client))
        .service(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    for path in ["/orders/7", "/"] {
        let preflight = Request::options(path).body(()).unwrap();
        let response = service.clone().oneshot(preflight).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
}
