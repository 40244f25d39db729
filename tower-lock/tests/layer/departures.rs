//! Clients that go while their requests wait, over TCP: when the server notices, and when it does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use http::{Request, Response, StatusCode};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lock_runtime::{LockGuard, LockManager};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tower_lock::LockLayer;

use crate::support::{by_path, eventually, name, waiters};

const CLIENTS: usize = 20;
/// The size of a body of which hyper reads only a part with the head, until somebody reads the body.
const UNREAD: usize = 500_000;
const LONG: Duration = Duration::from_secs(60);

struct Stage {
    address: SocketAddr,
    locks: LockManager,
    guard: LockGuard,
    /// The number of handlers that ran.
    ran: Arc<AtomicUsize>,
}

impl Stage {
    /// Starts a server whose key is taken. Its handler does not look at the body.
    async fn new(wait: Duration, read_first: bool) -> Stage {
        let locks = LockManager::in_memory();
        let guard = locks.mutex(name("a")).acquire().await.unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let app = Router::new()
            .route("/a", post(handle))
            .layer(LockLayer::new(locks.clone(), by_path).wait(wait))
            .with_state(ran.clone());
        let app = if read_first {
            app.layer(from_fn(read_body_first))
        } else {
            app
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Stage {
            address,
            locks,
            guard,
            ran,
        }
    }

    async fn waiting(&self, count: usize) {
        let what = format!("{count} requests wait");
        let waiting = async || waiters(&self.locks, &name("a")).await == count;
        eventually(&what, waiting).await;
    }

    /// Frees the key, waits until all requests that wait are served, and returns the number of handlers that ran.
    async fn serve_those_who_wait(self) -> usize {
        let Stage {
            locks, guard, ran, ..
        } = self;
        let last = tokio::spawn({
            let request = locks.mutex(name("a")).wait(LONG).acquire();
            async move { request.await.unwrap().release().await.unwrap() }
        });
        let before = waiters(&locks, &name("a")).await;
        eventually("it waits, too", async || {
            waiters(&locks, &name("a")).await > before || last.is_finished()
        })
        .await;
        guard.release().await.unwrap();
        last.await.unwrap();
        ran.load(Ordering::SeqCst)
    }
}

async fn handle(State(ran): State<Arc<AtomicUsize>>) {
    ran.fetch_add(1, Ordering::SeqCst);
}

/// Reads the body before the lock, as the recipe of the crate's documentation does.
async fn read_body_first(request: Request<Body>, next: Next) -> Result<Response<Body>, StatusCode> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 20_000_000)
        .await
        .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    Ok(next.run(Request::from_parts(head, body.into())).await)
}

/// Starts clients and waits until all of their requests wait. Each sends as much of its body as the server takes;
/// dropping them hangs up.
async fn clients(stage: &Stage, body: usize) -> tokio::task::JoinSet<()> {
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        clients.spawn(async move {
            let head = format!("POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: {body}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![b'x'; body]).await.unwrap();
            std::future::pending().await
        });
    }
    stage.waiting(CLIENTS).await;
    clients
}

#[tokio::test]
async fn a_departed_client_is_noticed_at_once_if_its_body_was_read() {
    // The server itself reads a small body with the head; a layer outside reads a large one.
    for (body, read_first) in [
        (0, false),
        (1_000, false),
        (UNREAD, true),
        (10_000_000, true),
    ] {
        let stage = Stage::new(LONG, read_first).await;
        drop(clients(&stage, body).await);
        stage.waiting(0).await;
        assert_eq!(
            stage.serve_those_who_wait().await,
            0,
            "{body}, {read_first}"
        );
    }
}

#[tokio::test]
async fn a_departed_client_with_an_unread_body_leaves_after_its_wait() {
    let stage = Stage::new(Duration::from_secs(12), false).await;
    drop(clients(&stage, UNREAD).await);
    stage.waiting(0).await;
    assert_eq!(stage.serve_those_who_wait().await, 0);

    // Until then each request keeps its place, and its handler runs for nobody, as the documentation warns. If this
    // fails, the server has learned to notice, and the warning can go.
    let stage = Stage::new(LONG, false).await;
    drop(clients(&stage, UNREAD).await);
    assert_eq!(stage.serve_those_who_wait().await, CLIENTS);
}

#[tokio::test]
async fn a_departed_client_with_an_unread_body_is_noticed_over_http_2() {
    let stage = Stage::new(LONG, false).await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let uri = format!("http://{}/a", stage.address);
        let request = Request::post(uri).body(Body::from(vec![b'x'; UNREAD]));
        requests.spawn(client.clone().send_request(request.unwrap()));
    }
    stage.waiting(CLIENTS).await;
    // The connection stays: each request is reset.
    drop(requests);
    stage.waiting(0).await;
    assert_eq!(stage.serve_those_who_wait().await, 0);
}
