//! Readiness, cloning and backpressure, poll by poll.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use lock_runtime::LockManager;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, service_fn};
use tower_lock::{LockLayer, RequestKey};
use tower_test::mock;

use crate::support::{self, by_path, get, name, waiters};

type Mock = mock::Mock<Request<String>, Response<String>>;
type Handle = mock::Handle<Request<String>, Response<String>>;

fn pair() -> (Mock, Handle) {
    mock::pair()
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_when_the_inner_service_is() {
    let (inner, mut handle) = pair();
    handle.allow(0);
    let mut service =
        mock::Spawn::new(LockLayer::new(LockManager::in_memory(), by_path).layer(inner));
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_passes_through() {
    let (inner, mut handle) = pair();
    let mut service =
        mock::Spawn::new(LockLayer::new(LockManager::in_memory(), by_path).layer(inner));
    handle.send_error("not ready");
    assert!(assert_ready!(service.poll_ready()).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_called_under_the_lock_and_not_before() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    let (inner, mut handle) = pair();
    let mut service = LockLayer::new(locks.clone(), by_path).layer(inner);
    std::future::poll_fn(|cx| service.poll_ready(cx))
        .await
        .unwrap();
    let mut response = spawn(Box::pin(service.call(get("/a"))));
    assert_pending!(response.poll());
    assert_pending!(handle.poll_request());
    guard.release().await.unwrap();
    let client = tokio::spawn(response.into_inner());
    // The mock would have panicked if it had been called without having been ready.
    let (request, reply) = handle.next_request().await.unwrap();
    assert_eq!(request.uri().path(), "/a");
    reply.send_response(Response::new("served".into()));
    assert_eq!(client.await.unwrap().unwrap().body(), "served");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_returns_the_permit_of_the_inner_service() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    let (inner, mut handle) = pair();
    let layer = LockLayer::new(locks.clone(), by_path).wait(Duration::from_secs(5));
    let mut service = mock::Spawn::new(layer.layer(ConcurrencyLimit::new(inner, 1)));
    assert_ready_ok!(service.poll_ready());
    let mut waiting = spawn(service.call(get("/a")));
    assert_pending!(waiting.poll());
    assert_pending!(service.poll_ready(), "the permit waits with the request");
    drop(waiting);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());

    // A refusal gives the permit back as well.
    let refused = service.call(get("/a")).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_ready_ok!(service.poll_ready());
    let mut served = spawn(service.call(get("/b")));
    assert_pending!(served.poll());
    let (_, reply) = handle.next_request().await.unwrap();
    assert_pending!(service.poll_ready());
    reply.send_response(Response::new(String::new()));
    served.await.unwrap();
    assert_ready_ok!(service.poll_ready());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_bad_key_returns_the_permit_of_the_inner_service() {
    let (inner, _handle) = pair();
    let one = tower::limit::GlobalConcurrencyLimitLayer::new(1);
    let layer = LockLayer::from_key(LockManager::in_memory(), RequestKey::new("o").header("id"));
    let mut service = mock::Spawn::new(layer.layer(one.layer(inner.clone())));
    let mut other = mock::Spawn::new(one.layer(inner));
    assert_ready_ok!(service.poll_ready());
    let refused = service.call(get("/a")).await.unwrap();
    assert_eq!(refused.status(), 400);
    assert_ready_ok!(other.poll_ready(), "the permit is back");
}

#[tokio::test(start_paused = true)]
async fn clones_wait_each_with_a_service_of_their_own() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    let (inner, mut handle) = pair();
    let service = LockLayer::new(locks.clone(), by_path).layer(inner);
    let clients: Vec<_> = (0..3)
        .map(|_| tokio::spawn(tower::ServiceExt::oneshot(service.clone(), get("/a"))))
        .collect();
    support::eventually("all wait", async || waiters(&locks, &name("a")).await == 3).await;
    guard.release().await.unwrap();
    for _ in 0..3 {
        let (_, reply) = handle.next_request().await.unwrap();
        assert_pending!(handle.poll_request(), "one at a time");
        reply.send_response(Response::new(String::new()));
    }
    for client in clients {
        client.await.unwrap().unwrap();
    }
}

/// A body that counts how often it is polled.
struct Watched(Arc<AtomicUsize>);

impl hyper::body::Body for Watched {
    type Data = &'static [u8];
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(None)
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_are_untouched_while_their_requests_wait() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    let request = Request::get("/a").body(Watched(polls.clone())).unwrap();
    let inner = service_fn(async |request: Request<Watched>| {
        let body = http_body_util::BodyExt::collect(request.into_body()).await;
        assert!(body.is_ok());
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    });
    let mut service = LockLayer::new(locks.clone(), by_path).layer(inner);
    let waiting = tokio::spawn(service.call(request));
    support::eventually("it waits", async || waiters(&locks, &name("a")).await == 1).await;
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_that_a_cap_refuses_let_other_tasks_run() {
    let layer = LockLayer::new(LockManager::in_memory(), by_path).max_waiters(0);
    let inner = service_fn(async |_: Request<String>| {
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    });
    let mut service = layer.layer(inner);
    let other = tokio::spawn(async {});
    for _ in 0..10_000 {
        if other.is_finished() {
            return;
        }
        let response = service.call(get("/a")).await.unwrap();
        assert_eq!(response.status(), 503);
    }
    panic!("refusals kept the thread");
}
