//! The time for which one request may keep its lock: a minute, unless the layer says otherwise. The clock is paused.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame};
use lock_runtime::LockManager;
use tokio::time::{Instant, Interval, interval, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_lock::LockLayer;

use crate::support::{self, Served, by_path, get, name};

const MINUTE: Duration = Duration::from_secs(60);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// A body of some bytes a second, for ever: a slow upload, or the events of a stream.
struct Drip(Interval);

impl Drip {
    fn new() -> Drip {
        Drip(interval(Duration::from_secs(1)))
    }
}

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let tick = self.0.poll_tick(cx);
        tick.map(|_| Some(Ok(Frame::data(Bytes::from_static(b"drip")))))
    }
}

/// Asserts that about a minute has passed: the release and the timers add a little.
fn assert_a_minute(since: Instant) {
    let took = since.elapsed();
    assert!(took >= MINUTE - Duration::from_millis(1), "{took:?}");
    assert!(took < MINUTE + Duration::from_secs(2), "{took:?}");
}

async fn is_held(locks: &LockManager) -> bool {
    locks.inspect(name("a")).await.unwrap().held
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_lock_for_a_minute_unless_unlimited() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone(), by_path);
    let never = || service_fn(async |_: Request<String>| pending::<Served>().await);
    let since = Instant::now();
    let served = layer.clone().layer(never()).oneshot(get("/a"));
    let response = timeout(TEN_MINUTES, served).await.expect("not for ever");
    assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_a_minute(since);
    support::released(&locks, &name("a")).await;

    let mut serving = Box::pin(layer.no_max_hold().layer(never()).oneshot(get("/a")));
    assert!(timeout(TEN_MINUTES, &mut serving).await.is_err());
    assert!(is_held(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_keeps_its_key_for_a_minute_and_no_longer() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path)
        .wait(2 * MINUTE)
        .layer(service_fn(async |request: Request<Drip>| {
            let body = request.into_body().collect().await.unwrap();
            Ok::<_, Infallible>(Response::new(format!("{} bytes", body.to_bytes().len())))
        }));
    let upload = |service: &mut _| {
        let request = Request::post("/a").body(Drip::new()).unwrap();
        Service::call(service, request)
    };
    let since = Instant::now();
    let attacker = tokio::spawn(upload(&mut service.clone()));
    support::eventually("it is served", async || is_held(&locks).await).await;
    // Somebody else waits for the key meanwhile, and gets it after a minute.
    let guard = locks.mutex(name("a")).wait(2 * MINUTE).acquire().await;
    assert_a_minute(since);
    guard.unwrap().release().await.unwrap();
    let response = attacker.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_under_its_lock_fails_after_max_hold() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone(), by_path)
        .until_body_end(MINUTE)
        .reply(|_| -> Result<_, Infallible> { panic!("nothing is refused") });
    let events =
        || service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Drip::new())));
    let since = Instant::now();
    let response = layer.clone().layer(events()).oneshot(get("/a")).await;
    let error = response.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");
    assert_a_minute(since);
    support::released(&locks, &name("a")).await;

    // `no_max_hold` lifts that, also when it is called after `until_body_end`.
    let response = layer.no_max_hold().layer(events()).oneshot(get("/a")).await;
    let mut body = response.unwrap().into_body();
    let read = async { while body.frame().await.unwrap().is_ok() {} };
    assert!(timeout(TEN_MINUTES, read).await.is_err());
    assert!(is_held(&locks).await);
    drop(body);
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_sent_without_the_lock_may_take_as_long_as_it_likes() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path)
        .reply(|_| -> Result<_, Infallible> { panic!("nothing is refused") })
        .layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(Drip::new()))
        }));
    let mut body = service.oneshot(get("/a")).await.unwrap().into_body();
    assert!(!is_held(&locks).await);
    let read = async { while body.frame().await.unwrap().is_ok() {} };
    assert!(timeout(TEN_MINUTES, read).await.is_err());
}
