//! Tests of the layer in front of a real Redis server: two services with a manager each, over TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use lock_runtime::LockName;
use redis::Value;
use tests::stops::{STOP_OF_A_GRANT, in_one_of_a_few_rounds};
use tests::{RedisServer, eventually};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_lock::{GrpcStatus, LockLayer};

const USER: &str = "locks";
const PASSWORD: &str = "hunter2-secret";
const LONG: Duration = Duration::from_secs(30);

/// The state that both services share, as two processes share the world.
#[derive(Clone, Default)]
struct World {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
    exit: Arc<Gate>,
}

/// The gate at the end of each handler. A handler ends when it gets a permit.
struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Semaphore::new(0))
    }
}

async fn handle(State(world): State<World>) -> &'static str {
    let now = world.running.fetch_add(1, Ordering::SeqCst) + 1;
    world.most.fetch_max(now, Ordering::SeqCst);
    world.exit.0.acquire().await.unwrap().forget();
    world.running.fetch_sub(1, Ordering::SeqCst);
    world.served.fetch_add(1, Ordering::SeqCst);
    "served"
}

fn by_path<B>(request: &Request<B>) -> Option<LockName> {
    let path = request.uri().path().rsplit('/').next()?;
    Some(LockName::from("path:").with(path))
}

async fn serve(url: &str, world: &World, wait: Duration) -> SocketAddr {
    let locks = tests::builder().connect(url).await.unwrap();
    let layer = LockLayer::new(locks, by_path).wait(wait);
    let http = Router::new()
        .route("/http/{id}", get(handle))
        .layer(layer.clone());
    let grpc = Router::new()
        .route("/grpc/{id}", get(handle))
        .layer(layer.reply(GrpcStatus));
    let app = http.merge(grpc).with_state(world.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

async fn send(address: SocketAddr, path: &'static str) -> Answer {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::get(path)
        .header("host", "test")
        .body(Body::empty());
    let response = client.send_request(request.unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Asserts that the answer tells a client nothing about the lock, the store or the access to it.
fn assert_tells_nothing(answer: &Answer, server: &RedisServer) {
    let shown = format!("{:?} {}", answer.headers, answer.body).to_lowercase();
    let port = server.port().to_string();
    for secret in [
        "path",
        "lock:",
        "redis",
        "noperm",
        "permission",
        "acl",
        "wrongtype",
        USER,
        PASSWORD,
        &port,
    ] {
        assert!(!shown.contains(secret), "`{secret}` in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_two_services_are_served_one_at_a_time() {
    in_one_of_a_few_rounds(
        STOP_OF_A_GRANT,
        "all of them are served",
        are_served_one_at_a_time,
    )
    .await;
}

/// Returns false if one of the requests was not served. What a message gives lasts for a second at first, and a busy machine
/// may stop the services for longer: then a handler is dropped, and still counts as running.
async fn are_served_one_at_a_time() -> bool {
    let (server, world) = (RedisServer::start(), World::default());
    let services = [
        serve(&server.url(), &world, LONG).await,
        serve(&server.url(), &world, LONG).await,
    ];
    let mut clients = JoinSet::new();
    for turn in 0..20 {
        clients.spawn(send(services[turn % 2], "/http/a"));
    }
    eventually("one is served", async || {
        world.running.load(Ordering::SeqCst) == 1
    })
    .await;
    assert!(server.exists("lock:path:a"));
    world.exit.0.add_permits(20);
    let mut all_served = true;
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap();
        // The lock of one that is not served is lost.
        let is_served = answer.status != StatusCode::SERVICE_UNAVAILABLE;
        assert!(!is_served || (answer.status, answer.body.as_str()) == (StatusCode::OK, "served"));
        all_served &= is_served;
    }
    if all_served {
        assert_eq!(world.most.load(Ordering::SeqCst), 1);
        assert_eq!(world.served.load(Ordering::SeqCst), 20);
    }
    eventually("the lock is free", async || !server.exists("lock:path:a")).await;
    all_served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_held_by_the_other_service_is_423_or_after_the_wait_503() {
    let (server, world) = (RedisServer::start(), World::default());
    let holder = serve(&server.url(), &world, LONG).await;
    let first = tokio::spawn(send(holder, "/http/a"));
    eventually("the first is served", async || {
        world.running.load(Ordering::SeqCst) == 1
    })
    .await;
    for (wait, status) in [
        (Duration::ZERO, StatusCode::LOCKED),
        // Long enough for the answer that the key is held.
        (Duration::from_secs(15), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let other = serve(&server.url(), &world, wait).await;
        let answer = send(other, "/http/a").await;
        assert_eq!(answer.status, status);
        assert!(answer.headers.contains_key("retry-after"));
        assert_tells_nothing(&answer, &server);
        let answer = send(other, "/grpc/a").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["grpc-status"], "10", "ABORTED");
        assert_tells_nothing(&answer, &server);
    }
    world.exit.0.add_permits(1);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    assert_eq!(world.served.load(Ordering::SeqCst), 1);
}

async fn assert_internal_error(address: SocketAddr, world: &World, server: &RedisServer) {
    let answer = send(address, "/http/a").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        !answer.headers.contains_key("retry-after"),
        "a retry cannot help"
    );
    assert_tells_nothing(&answer, server);
    let answer = send(address, "/grpc/a").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["grpc-status"], "13", "INTERNAL");
    assert!(!answer.headers.contains_key("grpc-retry-pushback-ms"));
    assert_tells_nothing(&answer, server);
    assert_eq!(world.most.load(Ordering::SeqCst), 0, "no handler ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_an_internal_error_without_details() {
    let (server, world) = (RedisServer::start(), World::default());
    let address = serve(&server.url(), &world, LONG).await;
    let _: Value = server.query(&["SET", "lock:path:a", "something else"]);
    assert_internal_error(address, &world, &server).await;
    let kept: String = server.query(&["GET", "lock:path:a"]);
    assert_eq!(kept, "something else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_are_an_internal_error_without_details() {
    let rights = format!("on >{PASSWORD} ~* &* +@all");
    let server = RedisServer::builder().user(USER, &rights).start();
    let world = World::default();
    let address = serve(&server.url_with(USER, PASSWORD), &world, LONG).await;
    let _: Value = server.query(&["ACL", "SETUSER", USER, "-evalsha", "-eval"]);
    assert_internal_error(address, &world, &server).await;
}
