//! The layer in a real server: axum over TCP, with hyper's client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use lock_runtime::LockManager;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_lock::LockLayer;

use crate::support::{self, Alive, by_path, name, retry_after, waiters};

/// The state of the handlers: when they end, and how many run.
#[derive(Clone)]
struct Stage {
    locks: LockManager,
    /// A handler ends when it gets a permit.
    exit: Arc<Semaphore>,
    /// The number of handlers that run now, by key.
    a: Arc<AtomicUsize>,
    b: Arc<AtomicUsize>,
    most_a: Arc<AtomicUsize>,
}

impl Stage {
    fn running_a(&self) -> usize {
        self.a.load(Ordering::SeqCst)
    }

    fn running_b(&self) -> usize {
        self.b.load(Ordering::SeqCst)
    }
}

async fn handle_a(State(stage): State<Stage>) -> &'static str {
    let _alive = Alive::one_of(&stage.a);
    stage.most_a.fetch_max(stage.running_a(), Ordering::SeqCst);
    stage.exit.acquire().await.unwrap().forget();
    "a"
}

async fn handle_b(State(stage): State<Stage>) -> &'static str {
    let _alive = Alive::one_of(&stage.b);
    stage.exit.acquire().await.unwrap().forget();
    "b"
}

async fn handle_panic() -> &'static str {
    panic!("as planned")
}

/// Loses its own lock just before it ends.
async fn handle_late(State(stage): State<Stage>) -> &'static str {
    assert!(stage.locks.force_release(name("late")).await.unwrap());
    "finished"
}

async fn serve(wait: Duration) -> (SocketAddr, Stage) {
    let locks = LockManager::in_memory();
    let stage = Stage {
        locks: locks.clone(),
        exit: Arc::new(Semaphore::new(0)),
        a: Arc::default(),
        b: Arc::default(),
        most_a: Arc::default(),
    };
    let app = Router::new()
        .route("/a", get(handle_a))
        .route("/b", get(handle_b))
        .route("/panic", get(handle_panic))
        .route("/late", get(handle_late))
        .route("/", get(async || "no lock"))
        .layer(LockLayer::new(locks, by_path).wait(wait))
        .with_state(stage.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, stage)
}

async fn send(address: SocketAddr, path: &str) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    // The connection's task is aborted with this future: the client then hangs up.
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    let request = Request::get(path)
        .header("host", "test")
        .body(Body::empty())
        .unwrap();
    let response = client.send_request(request).await;
    driver.detach_all();
    response
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn requests_for_one_key_are_serialised_while_other_keys_run() {
    let (address, stage) = serve(LONG).await;
    let mut clients = tokio::task::JoinSet::new();
    for path in ["/a"; 10].into_iter().chain(["/b"; 2]) {
        clients.spawn(send(address, path));
    }
    support::eventually("one of a runs, the others wait", async || {
        stage.running_a() == 1 && waiters(&stage.locks, &name("a")).await == 9
    })
    .await;
    support::eventually("one of b runs, too", async || stage.running_b() == 1).await;
    stage.exit.add_permits(12);
    while let Some(response) = clients.join_next().await {
        assert_eq!(response.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(stage.most_a.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_busy_key_is_refused_423_or_after_its_wait_503() {
    for (wait, status) in [
        (Duration::ZERO, StatusCode::LOCKED),
        (Duration::from_millis(50), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (address, stage) = serve(wait).await;
        let first = tokio::spawn(send(address, "/a"));
        support::eventually("the first is served", async || stage.running_a() == 1).await;
        let second = send(address, "/a").await.unwrap();
        assert_eq!(second.status(), status);
        assert!((1..=5).contains(&retry_after(&second).unwrap()));
        let body = text(second).await;
        assert!(body.starts_with('{') && body.ends_with('}'), "{body}");
        stage.exit.add_permits(1);
        assert_eq!(text(first.await.unwrap().unwrap()).await, "a");
    }
}

#[tokio::test]
async fn a_lost_lock_ends_the_handler_and_is_answered_503() {
    let (address, stage) = serve(LONG).await;
    let client = tokio::spawn(send(address, "/a"));
    support::eventually("it is served", async || stage.running_a() == 1).await;
    assert!(stage.locks.force_release(name("a")).await.unwrap());
    let response = client.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
    assert_eq!(stage.running_a(), 0);
}

#[tokio::test]
async fn a_finished_response_is_delivered_although_the_lock_was_lost() {
    let (address, _stage) = serve(LONG).await;
    let response = send(address, "/late").await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "finished");
}

#[tokio::test]
async fn a_disconnected_client_leaves_the_queue_or_ends_its_handler() {
    let (address, stage) = serve(LONG).await;
    let first = tokio::spawn(send(address, "/a"));
    support::eventually("the first is served", async || stage.running_a() == 1).await;
    let second = tokio::spawn(send(address, "/a"));
    support::eventually("the second waits", async || {
        waiters(&stage.locks, &name("a")).await == 1
    })
    .await;
    second.abort();
    support::eventually("the second left the queue", async || {
        waiters(&stage.locks, &name("a")).await == 0
    })
    .await;
    assert_eq!(stage.running_a(), 1);
    first.abort();
    support::eventually("the handler was dropped", async || stage.running_a() == 0).await;
    support::released(&stage.locks, &name("a")).await;
}

#[tokio::test]
async fn a_panicking_handler_releases() {
    let (address, stage) = serve(LONG).await;
    assert!(
        send(address, "/panic").await.is_err(),
        "the connection ends"
    );
    support::released(&stage.locks, &name("panic")).await;
}

#[tokio::test]
async fn a_request_without_a_key_passes_through() {
    let (address, stage) = serve(LONG).await;
    stage.locks.shutdown().await;
    assert_eq!(text(send(address, "/").await.unwrap()).await, "no lock");
    let refused = send(address, "/a").await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
}
