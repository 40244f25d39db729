//! Layers that hold the lock until the end of the response body.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Bytes, Frame};
use lock_runtime::LockManager;
use tokio::sync::mpsc;
use tokio_test::{assert_pending, assert_ready};
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{EmptyBody, LockLayer};

use crate::support::{self, Alive, by_path, get, name};

const LONGEST: Duration = Duration::from_secs(60);

/// A body whose frames the test sends.
struct Stream {
    frames: mpsc::UnboundedReceiver<&'static str>,
    _alive: Alive,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let text = self.frames.poll_recv(cx);
        text.map(|text| text.map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

struct Stage {
    locks: LockManager,
    frames: mpsc::UnboundedSender<&'static str>,
    bodies: Arc<AtomicUsize>,
    body: Pin<Box<dyn Body<Data = Bytes, Error = tower::BoxError> + Send>>,
}

impl Stage {
    async fn new() -> Stage {
        let locks = LockManager::in_memory();
        let bodies = Arc::new(AtomicUsize::new(0));
        let (frames, receiver) = mpsc::unbounded_channel();
        let alive = Alive::one_of(&bodies);
        let stream = Arc::new(std::sync::Mutex::new(Some(Stream {
            frames: receiver,
            _alive: alive,
        })));
        let service = LockLayer::new(locks.clone(), by_path)
            .until_body_end(LONGEST)
            .reply(|_| -> Result<_, Infallible> { panic!("nothing is refused") })
            .layer(service_fn(move |_: Request<String>| {
                let stream = stream.lock().unwrap().take().unwrap();
                std::future::ready(Ok::<_, Infallible>(Response::new(stream)))
            }));
        let response = service.oneshot(get("/a")).await.unwrap();
        Stage {
            locks,
            frames,
            bodies,
            body: Box::pin(response.into_body()),
        }
    }

    async fn is_locked(&self) -> bool {
        self.locks.inspect(name("a")).await.unwrap().held
    }

    fn poll(&mut self) -> Poll<Option<Result<Bytes, tower::BoxError>>> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let frame = self.body.as_mut().poll_frame(&mut context);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_until_the_last_frame() {
    let mut stage = Stage::new().await;
    assert_pending!(stage.poll());
    for text in ["one", "two"] {
        stage.frames.send(text).unwrap();
        assert_eq!(assert_ready!(stage.poll()).unwrap().unwrap(), text);
        assert!(stage.is_locked().await);
    }
    // This is longer than the lease, which is renewed meanwhile.
    tokio::time::sleep(LONGEST - Duration::from_secs(1)).await;
    assert!(stage.is_locked().await);
    let Stage {
        locks,
        frames,
        mut body,
        ..
    } = stage;
    drop(frames);
    assert!(body.frame().await.is_none());
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_releases() {
    let stage = Stage::new().await;
    assert!(stage.is_locked().await);
    drop(stage.body);
    support::released(&stage.locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_reads_holds_no_longer_than_max_hold() {
    let mut stage = Stage::new().await;
    tokio::time::sleep(LONGEST - Duration::from_secs(1)).await;
    assert!(stage.is_locked().await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        !stage.is_locked().await,
        "not even for the rest of the lease"
    );
    stage.frames.send("late").unwrap();
    assert!(assert_ready!(stage.poll()).unwrap().is_err());
    assert_eq!(stage.bodies.load(Ordering::SeqCst), 0);
    assert!(assert_ready!(stage.poll()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_cuts_the_body_off_with_an_error() {
    let mut stage = Stage::new().await;
    assert_pending!(stage.poll());
    assert!(stage.locks.force_release(name("a")).await.unwrap());
    let error = assert_ready!(stage.poll()).unwrap().unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");
    assert_eq!(stage.bodies.load(Ordering::SeqCst), 0, "dropped");
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_or_an_error_releases_at_once() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone(), by_path).until_body_end(LONGEST);
    let empty = layer
        .clone()
        .reply(EmptyBody)
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }));
    let _response = empty.oneshot(get("/a")).await.unwrap();
    support::released(&locks, &name("a")).await;
    let failing = layer.layer(service_fn(async |_: Request<String>| {
        Err::<Response<Full<Bytes>>, _>("inner error")
    }));
    assert!(failing.oneshot(get("/a")).await.is_err());
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_before_the_response_is_answered_503() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path)
        .until_body_end(Duration::from_secs(5))
        .layer(service_fn(async |_: Request<String>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        }));
    let response = service.clone().oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), 503);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{"));
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_streams_without_a_lock() {
    let locks = LockManager::in_memory();
    locks.shutdown().await;
    let service = LockLayer::new(locks, by_path)
        .until_body_end(LONGEST)
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("all of it")))
        }));
    let response = service.oneshot(get("/")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "all of it");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_refused_where_its_lock_could_not_be_held() {
    let locks = LockManager::in_memory();
    let upgrade = service_fn(async |_: Request<String>| {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Ok::<_, Infallible>(response)
    });
    let layer = LockLayer::new(locks.clone(), by_path);
    let response = layer
        .clone()
        .layer(upgrade)
        .oneshot(get("/a"))
        .await
        .unwrap();
    assert_eq!(
        response.status(),
        101,
        "its lock ends with the response, as documented"
    );

    let held = layer.until_body_end(LONGEST).layer(upgrade);
    let refused = held.clone().oneshot(get("/a")).await.unwrap();
    assert_eq!(refused.status(), 500);
    support::released(&locks, &name("a")).await;
    let without_a_lock = held.oneshot(get("/")).await.unwrap();
    assert_eq!(without_a_lock.status(), 101, "nothing was promised");
}

/// A body that fails, and notes whether the lock was held when it was dropped.
struct Failing {
    locks: LockManager,
    was_locked: Arc<AtomicUsize>,
}

impl Body for Failing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("broken"))))
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // The memory store answers in the first poll.
        let locks = self.locks.clone();
        let mut looked = tokio_test::task::spawn(async move { locks.inspect(name("a")).await });
        let is_locked = assert_ready!(looked.poll()).unwrap().held;
        self.was_locked.store(is_locked.into(), Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_ends_before_its_lock_does() {
    let locks = LockManager::in_memory();
    let was_locked = Arc::new(AtomicUsize::new(0));
    let (stage, noted) = (locks.clone(), was_locked.clone());
    let service = LockLayer::new(locks.clone(), by_path)
        .until_body_end(LONGEST)
        .reply(|_| -> Result<_, Infallible> { panic!("nothing is refused") })
        .layer(service_fn(move |_: Request<String>| {
            let (locks, was_locked) = (stage.clone(), noted.clone());
            let body = Failing { locks, was_locked };
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        }));
    let mut body = service.oneshot(get("/a")).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(was_locked.load(Ordering::SeqCst), 1, "the body went first");
    support::released(&locks, &name("a")).await;
    assert!(body.frame().await.is_none(), "no frame without the lock");
}
