//! The layer in a real gRPC server: tonic over HTTP/2, with tonic's client.
//!
//! The service is written by hand, with a codec for plain text, so that the tests need no protoc.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut};
use lock_runtime::LockManager;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;
use tower_lock::{GrpcStatus, LockLayer, RequestKey};

use crate::support::{self, Alive, released, waiters};

/// The codec, whose messages are plain text.
#[derive(Clone, Copy, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Text;
    type Decoder = Text;

    fn encoder(&mut self) -> Text {
        Text
    }

    fn decoder(&mut self) -> Text {
        Text
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Ok(String::from_utf8(bytes.to_vec()).ok())
    }
}

/// The stream that a watcher is sent. It is counted while the server has it.
struct Ticks {
    ticks: mpsc::UnboundedReceiver<String>,
    _alive: Alive,
}

impl Stream for Ticks {
    type Item = Result<String, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.ticks.poll_recv(cx).map(|tick| tick.map(Ok))
    }
}

/// The service: `Move` ends when it gets a permit, `Watch` streams what the test sends, `Panic` panics.
#[derive(Clone)]
struct Transfer {
    permits: Arc<Semaphore>,
    moving: Arc<AtomicUsize>,
    watching: Arc<AtomicUsize>,
    watchers: mpsc::UnboundedSender<mpsc::UnboundedSender<String>>,
}

impl NamedService for Transfer {
    const NAME: &'static str = "test.Transfer";
}

type Answer = http::Response<tonic::body::Body>;

impl tower::Service<http::Request<tonic::body::Body>> for Transfer {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Text);
            Ok(match request.uri().path().rsplit('/').next() {
                Some("Move") => {
                    let service = service_fn(move |_: Request<String>| {
                        let this = this.clone();
                        async move {
                            let _alive = Alive::one_of(&this.moving);
                            this.permits.acquire().await.unwrap().forget();
                            Ok(Response::new("moved".to_owned()))
                        }
                    });
                    grpc.unary(service, request).await
                }
                Some("Watch") => {
                    let service = service_fn(move |_: Request<String>| {
                        let (sender, ticks) = mpsc::unbounded_channel();
                        this.watchers.send(sender).unwrap();
                        let _alive = Alive::one_of(&this.watching);
                        std::future::ready(Ok(Response::new(Ticks { ticks, _alive })))
                    });
                    grpc.server_streaming(service, request).await
                }
                _ => panic!("as planned"),
            })
        })
    }
}

struct Stage {
    address: SocketAddr,
    locks: LockManager,
    permits: Arc<Semaphore>,
    moving: Arc<AtomicUsize>,
    watching: Arc<AtomicUsize>,
    watchers: mpsc::UnboundedReceiver<mpsc::UnboundedSender<String>>,
}

/// Serves with the lock `account:…` of the metadata entry `x-account`, held until the end of the stream.
async fn serve(wait: Duration) -> Stage {
    let locks = LockManager::in_memory();
    let (watchers, receiver) = mpsc::unbounded_channel();
    let service = Transfer {
        permits: Arc::new(Semaphore::new(0)),
        moving: Arc::default(),
        watching: Arc::default(),
        watchers,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stage = Stage {
        address: listener.local_addr().unwrap(),
        locks: locks.clone(),
        permits: service.permits.clone(),
        moving: service.moving.clone(),
        watching: service.watching.clone(),
        watchers: receiver,
    };
    let layer = LockLayer::from_key(locks, RequestKey::new("account").header("x-account"))
        .wait(wait)
        .reply(GrpcStatus)
        .until_body_end(Duration::from_secs(60));
    let server = Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    stage
}

impl Stage {
    async fn client(&self) -> Grpc<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Grpc::new(endpoint.connect().await.unwrap())
    }

    fn moving(&self) -> usize {
        self.moving.load(Ordering::SeqCst)
    }
}

fn request(account: &str) -> Request<String> {
    let mut request = Request::new("10".to_owned());
    let account = account.parse().unwrap();
    request.metadata_mut().insert("x-account", account);
    request
}

async fn unary(mut client: Grpc<Channel>, method: &str, account: &str) -> Result<String, Status> {
    client
        .ready()
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let path = format!("/test.Transfer/{method}").parse().unwrap();
    let response = client.unary(request(account), path, Text).await;
    response.map(Response::into_inner)
}

async fn watch(mut client: Grpc<Channel>, account: &str) -> Result<Streaming<String>, Status> {
    client
        .ready()
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let path = "/test.Transfer/Watch".parse().unwrap();
    let response = client.server_streaming(request(account), path, Text).await;
    response.map(Response::into_inner)
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn calls_for_one_account_are_serialised_or_aborted() {
    let stage = serve(Duration::ZERO).await;
    let client = stage.client().await;
    let first = tokio::spawn(unary(client.clone(), "Move", "7"));
    support::eventually("the first moves", async || stage.moving() == 1).await;
    let refused = unary(client.clone(), "Move", "7").await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.metadata().contains_key("grpc-retry-pushback-ms"));
    let other = tokio::spawn(unary(client, "Move", "8"));
    support::eventually("the other moves", async || stage.moving() == 2).await;
    stage.permits.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), "moved");
    assert_eq!(other.await.unwrap().unwrap(), "moved");
    released(&stage.locks, &"account:7".into()).await;
}

#[tokio::test]
async fn a_stream_holds_its_lock_until_it_ends_or_its_client_leaves() {
    let mut stage = serve(Duration::ZERO).await;
    let client = stage.client().await;
    let mut stream = watch(client.clone(), "7").await.unwrap();
    let ticks = stage.watchers.recv().await.unwrap();
    ticks.send("tick".into()).unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap(), "tick");
    let refused = watch(client.clone(), "7").await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    drop(ticks);
    assert!(stream.message().await.unwrap().is_none());
    released(&stage.locks, &"account:7".into()).await;

    let stream = watch(client, "7").await.unwrap();
    assert!(stage.locks.inspect("account:7").await.unwrap().held);
    drop(stream);
    released(&stage.locks, &"account:7".into()).await;
    let watching = || stage.watching.load(Ordering::SeqCst);
    support::eventually("the stream is gone", async || watching() == 0).await;
}

#[tokio::test]
async fn a_lost_lock_ends_a_stream_with_an_error() {
    let mut stage = serve(LONG).await;
    let mut stream = watch(stage.client().await, "7").await.unwrap();
    let ticks = stage.watchers.recv().await.unwrap();
    ticks.send("tick".into()).unwrap();
    assert!(stream.message().await.unwrap().is_some());
    assert!(stage.locks.force_release("account:7").await.unwrap());
    assert!(stream.message().await.is_err());
    assert_eq!(stage.watching.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_leaves_the_queue() {
    let stage = serve(LONG).await;
    let client = stage.client().await;
    let first = tokio::spawn(unary(client.clone(), "Move", "7"));
    support::eventually("the first moves", async || stage.moving() == 1).await;
    let second = tokio::spawn(unary(client, "Move", "7"));
    let waiting = async || waiters(&stage.locks, &"account:7".into()).await;
    support::eventually("the second waits", async || waiting().await == 1).await;
    second.abort();
    support::eventually("it left the queue", async || waiting().await == 0).await;
    first.abort();
    released(&stage.locks, &"account:7".into()).await;
    assert_eq!(stage.moving(), 0);
}

#[tokio::test]
async fn a_panicking_method_releases() {
    let stage = serve(LONG).await;
    let failed = unary(stage.client().await, "Panic", "7").await;
    assert!(failed.is_err());
    released(&stage.locks, &"account:7".into()).await;
}
