//! The answers to each kind of refusal, over HTTP and over gRPC.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use http::{Request, Response};
use lock_runtime::{LockManager, LockName};
use tonic::Code;
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{AsError, GrpcStatus, LockLayer, Refusal, RefusalKind, RequestKey};

use crate::support::{Served, get, name};

/// Returns the name in the header `lock`.
fn by_header(request: &Request<String>) -> Option<LockName> {
    let value = request.headers().get("lock")?.to_str().ok()?;
    Some(LockName::from("path:").with(value))
}

async fn grpc<R>(layer: LockLayer<R>, lock: &str) -> tonic::Status
where
    R: tower_lock::LockKey<Request<String>>,
{
    let service = layer
        .reply(GrpcStatus)
        .layer(service_fn(async |_: Request<String>| {
            pending::<Served>().await
        }));
    let mut request = get("/package.Service/Method");
    request.headers_mut().insert("lock", lock.parse().unwrap());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let pushback = response.headers().get("grpc-retry-pushback-ms");
    let pushback: Option<u64> = pushback.map(|millis| millis.to_str().unwrap().parse().unwrap());
    let status = tonic::Status::from_header_map(response.headers()).unwrap();
    let retryable = !matches!(status.code(), Code::InvalidArgument | Code::Internal);
    assert_eq!(pushback.is_some(), retryable, "{status:?}");
    assert!(pushback.is_none_or(|millis| (1_000..=5_000).contains(&millis)));
    assert!(!status.message().is_empty() && !status.message().contains("path:"));
    status
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_grpc_status() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex(name("busy")).acquire().await.unwrap();
    let layer = LockLayer::new(locks.clone(), by_header).wait(Duration::ZERO);
    let code = async |layer, lock: &str| grpc(layer, lock).await.code();

    assert_eq!(code(layer.clone(), "busy").await, Code::Aborted);
    let waits = layer.clone().wait(Duration::from_secs(1));
    assert_eq!(code(waits, "busy").await, Code::Aborted);
    let capped = layer.clone().max_waiters(0);
    assert_eq!(code(capped, "busy").await, Code::ResourceExhausted);
    assert_eq!(code(layer.clone(), "").await, Code::InvalidArgument);
    let wrong = layer.clone().lease(Duration::ZERO);
    assert_eq!(code(wrong, "free").await, Code::Internal);
    let lost = layer.clone().max_hold(Duration::from_secs(1));
    assert_eq!(code(lost, "free").await, Code::Aborted);
    locks.shutdown().await;
    assert_eq!(code(layer, "free").await, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn one_key_serves_axum_and_tonic() {
    let key = RequestKey::new("account").header("x-account");
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("account:7").acquire().await.unwrap();
    let layer = LockLayer::from_key(locks, key).wait(Duration::ZERO);

    let axum = layer
        .clone()
        .layer(service_fn(async |_: Request<axum::body::Body>| {
            Ok::<_, Infallible>(Response::new(axum::body::Body::empty()))
        }));
    let request = Request::get("/").header("x-account", "7").body("".into());
    let response = axum.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 423);

    let tonic = layer
        .reply(GrpcStatus)
        .layer(service_fn(async |_: Request<tonic::body::Body>| {
            Ok::<_, Infallible>(Response::new(tonic::body::Body::empty()))
        }));
    let request = Request::post("/")
        .header("x-account", "7")
        .body(tonic::body::Body::empty());
    let response = tonic.oneshot(request.unwrap()).await.unwrap();
    let status = tonic::Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_where_the_service_is_not_http() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("account:7").acquire().await.unwrap();
    let layer = LockLayer::from_key(locks, |account: &u64| Some(format!("account:{account}")))
        .wait(Duration::ZERO)
        .reply(AsError);
    let service = layer.layer(service_fn(async |_: u64| Ok::<_, tower::BoxError>(())));
    let error = service.oneshot(7).await.unwrap_err();
    let refusal = error.downcast::<Refusal>().unwrap();
    assert_eq!(refusal.kind(), RefusalKind::Busy);
    assert!(std::error::Error::source(&*refusal).is_some());
}

#[test]
fn public_types_can_be_sent_shared_and_shown() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug>(_: &T) {}
    fn check_future<T: Send + std::fmt::Debug>(_: &T) {}
    async fn handle(_: Request<String>) -> Served {
        Ok(Response::new(String::new()))
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let layer = LockLayer::new(LockManager::in_memory(), by_header);
    check(&layer);
    let mut service = layer.layer(service_fn(handle));
    check(&service.clone());
    check_future(&tower::Service::call(&mut service, get("/")));
    check(&RequestKey::new("a").path());
}
