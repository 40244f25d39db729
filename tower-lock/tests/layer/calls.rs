//! One call through the layer: when it is admitted, and how it is refused otherwise. The clock is paused.

use std::convert::Infallible;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use lock_runtime::{LockError, LockManager, MemoryStore};
use tokio::sync::oneshot;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_lock::{EmptyBody, LockLayer, Refusal, RefusalKind};

use crate::support::{self, Alive, Served, by_path, get, name, retry_after, waiters};

const NO_WAIT: Duration = Duration::ZERO;

async fn serve(_: Request<String>) -> Served {
    Ok(Response::new("served".into()))
}

async fn serve_a_body(_: Request<String>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("served")))
}

async fn never(_: Request<String>) -> Served {
    pending().await
}

/// Asserts that a client is refused with `status`, and is told nothing about the lock.
fn assert_refused(response: &Response<String>, status: StatusCode) {
    assert_eq!(response.status(), status);
    let body = response.body();
    assert_eq!(
        response.headers()[http::header::CONTENT_TYPE],
        "application/problem+json"
    );
    assert!(
        body.contains(&format!(r#""status":{}"#, status.as_u16())),
        "{body}"
    );
    for secret in ["path:", "lease", "store", "redis", "Busy", "lock"] {
        assert!(!body.contains(secret), "{secret} in {body}");
    }
}

/// Awaits `call`, then polls it again, and returns the message of its panic.
async fn polled_again<F: Future>(call: F) -> String {
    let mut call = pin!(call);
    call.as_mut().await;
    let mut context = Context::from_waker(Waker::noop());
    let again = catch_unwind(AssertUnwindSafe(|| {
        call.as_mut().poll(&mut context).is_ready()
    }));
    let panic =
        again.expect_err("a panic, neither `Pending` without a waker nor a second response");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast::<&str>().unwrap().to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_after_its_response_panics() {
    const WORDS: &str = "polled after complete";
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone(), by_path).wait(NO_WAIT);
    let mut service = layer.layer(service_fn(serve));
    assert_eq!(polled_again(service.call(get("/"))).await, WORDS);
    assert_eq!(polled_again(service.call(get("/a"))).await, WORDS);
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    assert_eq!(polled_again(service.call(get("/a"))).await, WORDS);
    guard.release().await.unwrap();

    let keyless = LockLayer::from_async_key(locks, |_: &mut Parts| Box::pin(async { None }));
    let mut service = keyless.layer(service_fn(serve));
    assert_eq!(polled_again(service.call(get("/a"))).await, WORDS);

    let whole = layer.until_body_end(Duration::from_secs(5));
    let mut service = whole.clone().layer(service_fn(serve_a_body));
    assert_eq!(polled_again(service.call(get("/a"))).await, WORDS);
    let mut service = whole.layer(service_fn(|request| async move {
        drop(request);
        pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    }));
    assert_eq!(polled_again(service.call(get("/a"))).await, WORDS, "lost");
}

#[tokio::test(start_paused = true)]
async fn a_request_holds_its_lock_until_the_response_is_done() {
    let locks = LockManager::in_memory();
    let other = locks.clone();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(
        move |request: Request<String>| {
            let other = other.clone();
            async move {
                assert!(other.inspect(name("a")).await.unwrap().held);
                serve(request).await
            }
        },
    ));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.body(), "served");
    let info = locks.inspect(name("a")).await.unwrap();
    assert!(!info.held, "released before the response is delivered");
}

#[tokio::test(start_paused = true)]
async fn requests_for_one_key_take_turns_while_other_keys_are_served() {
    let locks = LockManager::in_memory();
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(
        move |request: Request<String>| {
            let (done, finish) = oneshot::channel::<()>();
            seen.send((request.uri().path().to_owned(), request.into_body(), done))
                .unwrap();
            async move {
                let _ = finish.await;
                Served::Ok(Response::new(String::new()))
            }
        },
    ));
    let send = |path: &str, body: usize| {
        let mut request = get(path);
        *request.body_mut() = body.to_string();
        tokio::spawn(service.clone().oneshot(request))
    };
    let mut clients = vec![];
    for number in 0..3 {
        clients.push(send("/a", number));
        tokio::task::yield_now().await;
    }
    clients.push(send("/b", 3));
    let first = arrivals.recv().await.unwrap();
    let other = arrivals.recv().await.unwrap();
    assert_eq!((&*first.0, &*first.1), ("/a", "0"));
    assert_eq!((&*other.0, &*other.1), ("/b", "3"));
    support::eventually("two wait", async || waiters(&locks, &name("a")).await == 2).await;
    assert!(arrivals.is_empty());
    drop((first, other));
    for number in ["1", "2"] {
        let (path, body, _done) = arrivals.recv().await.unwrap();
        assert_eq!((&*path, &*body), ("/a", number));
    }
    for client in clients {
        assert_eq!(client.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_is_refused_423_at_once_without_a_wait() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (holder, locks) = (manager().unwrap(), manager().unwrap());
    // The error knows what is left of the lease of another process. The client must not learn it.
    let held = holder.mutex(name("a")).lease(Duration::from_secs(3));
    let _guard = held.acquire().await.unwrap();
    let service = LockLayer::new(locks, by_path)
        .wait(NO_WAIT)
        .layer(service_fn(never));
    let since = tokio::time::Instant::now();
    let mut hints = std::collections::HashSet::new();
    for _ in 0..50 {
        let response = service.clone().oneshot(get("/a")).await.unwrap();
        assert_refused(&response, StatusCode::LOCKED);
        hints.insert(retry_after(&response).unwrap());
    }
    assert!(hints.iter().all(|hint| (1..=5).contains(hint)), "{hints:?}");
    assert!(hints.len() > 1, "jittered: {hints:?}");
    assert!(since.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_wait_makes_its_layers_refuse_423() {
    let locks = LockManager::builder().wait(NO_WAIT).in_memory().unwrap();
    let _guard = locks.mutex(name("a")).acquire().await.unwrap();
    let service = LockLayer::new(locks, by_path).layer(service_fn(never));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::LOCKED);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_answered_503_and_leaves_the_queue() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex(name("a")).acquire().await.unwrap();
    let service = LockLayer::new(locks.clone(), by_path)
        .wait(Duration::from_secs(3))
        .layer(service_fn(never));
    let since = tokio::time::Instant::now();
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
    let waited = since.elapsed();
    assert!(waited >= Duration::from_secs(3) && waited < Duration::from_secs(4));
    assert_eq!(waiters(&locks, &name("a")).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_passes_through() {
    struct Once;
    impl Clone for Once {
        fn clone(&self) -> Once {
            panic!("nothing is cloned for a request that needs no lock")
        }
    }
    impl Service<Request<String>> for Once {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Served>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<String>) -> Self::Future {
            std::future::ready(Ok(Response::new("served".into())))
        }
    }
    let locks = LockManager::in_memory();
    // A request without a key is served even if the manager admits nobody.
    locks.shutdown().await;
    let mut service = LockLayer::new(locks, by_path).layer(Once);
    let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
    assert_eq!(response.body(), "served");
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_drops_the_inner_call_and_is_answered_503() {
    let locks = LockManager::in_memory();
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(
        move |request: Request<String>| {
            let alive = Alive::one_of(&count);
            async move {
                let _alive = alive;
                never(request).await
            }
        },
    ));
    let client = tokio::spawn(service.oneshot(get("/a")));
    support::eventually("it is served", async || alive.load(Ordering::SeqCst) == 1).await;
    assert!(locks.force_release(name("a")).await.unwrap());
    let response = client.await.unwrap().unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_the_inner_call() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path)
        .max_hold(Duration::from_secs(45))
        .layer(service_fn(never));
    let since = tokio::time::Instant::now();
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!(since.elapsed() >= Duration::from_secs(45));
    assert!(since.elapsed() < Duration::from_secs(47));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_the_next_request_if_the_layer_says_so() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone(), by_path).keep_for(Duration::from_secs(5));
    for _ in 0..3 {
        let service = layer.clone().layer(service_fn(serve));
        let response = service.oneshot(get("/a")).await.unwrap();
        assert_eq!(response.body(), "served");
        assert!(locks.inspect(name("a")).await.unwrap().kept);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!locks.inspect(name("a")).await.unwrap().held);
    let service = layer.fair().layer(service_fn(serve));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_lock_past_the_lease() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path)
        .lease(Duration::from_secs(1))
        .layer(service_fn(async |request| {
            tokio::time::sleep(Duration::from_secs(50)).await;
            serve(request).await
        }));
    let client = tokio::spawn(service.oneshot(get("/a")));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(locks.inspect(name("a")).await.unwrap().held);
    assert_eq!(client.await.unwrap().unwrap().body(), "served");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_a_name_is_answered_400() {
    let locks = LockManager::in_memory();
    let empty =
        |request: &Request<String>| Some(lock_runtime::LockName::from("k:").with(request.body()));
    let service = LockLayer::new(locks.clone(), empty).layer(service_fn(never));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::BAD_REQUEST);
    assert_eq!(retry_after(&response), None);

    let service = LockLayer::new(locks, by_path).layer(service_fn(never));
    let response = service
        .oneshot(get(&format!("/{}", "x".repeat(600))))
        .await
        .unwrap();
    assert_refused(&response, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_option_is_answered_500_without_details() {
    let service = LockLayer::new(LockManager::in_memory(), by_path)
        .lease(Duration::from_millis(1))
        .layer(service_fn(never));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(retry_after(&response), None);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_shuts_down_sends_waiting_requests_away() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex(name("a")).acquire().await.unwrap();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(serve));
    let waiting = tokio::spawn(service.clone().oneshot(get("/a")));
    support::eventually("it waits", async || waiters(&locks, &name("a")).await == 1).await;
    let shutdown = tokio::spawn(async move { locks.shutdown().await });
    let response = waiting.await.unwrap().unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    drop(guard);
    shutdown.await.unwrap();
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_answered_503_at_once() {
    let locks = LockManager::builder()
        .max_waiters_per_key(1)
        .in_memory()
        .unwrap();
    let _guard = locks.mutex(name("a")).acquire().await.unwrap();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(never));
    let waiting = tokio::spawn(service.clone().oneshot(get("/a")));
    support::eventually("one waits", async || waiters(&locks, &name("a")).await == 1).await;
    let since = tokio::time::Instant::now();
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!(since.elapsed() < Duration::from_millis(100));
    waiting.abort();
}

#[tokio::test]
async fn a_store_that_is_away_is_answered_503() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let locks = LockManager::builder()
        .lazy(true)
        .connect(&format!("redis://127.0.0.1:{port}/"))
        .await
        .unwrap();
    let service = LockLayer::new(locks, by_path)
        .wait(Duration::from_millis(200))
        .layer(service_fn(never));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_refused(&response, StatusCode::SERVICE_UNAVAILABLE);
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asks_for_the_same_lock_re_enters() {
    let locks = LockManager::in_memory();
    let inner = locks.clone();
    // The handler asks for the lock while the service is being called, and again while its future runs.
    let handler = service_fn(move |request: Request<String>| {
        let called = inner.mutex(name("a")).wait(NO_WAIT).acquire();
        let polled = inner.mutex(name("a")).wait(NO_WAIT);
        async move {
            drop(called.await.unwrap());
            drop(polled.acquire().await.unwrap());
            serve(request).await
        }
    });
    // Two layers with the same key in one stack re-enter, too.
    let layer = LockLayer::new(locks.clone(), by_path).wait(NO_WAIT);
    let service = layer.clone().layer(layer.layer(handler));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.body(), "served");
    assert!(!locks.inspect(name("a")).await.unwrap().held);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_leaves_the_queue_or_releases() {
    let locks = LockManager::in_memory();
    let service = LockLayer::new(locks.clone(), by_path).layer(service_fn(never));
    let serving = tokio::spawn(service.clone().oneshot(get("/a")));
    support::eventually("it is served", async || {
        locks.inspect(name("a")).await.unwrap().held
    })
    .await;
    let waiting = tokio::spawn(service.oneshot(get("/a")));
    support::eventually("it waits", async || waiters(&locks, &name("a")).await == 1).await;
    waiting.abort();
    support::eventually("it left", async || waiters(&locks, &name("a")).await == 0).await;
    serving.abort();
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_releases() {
    let locks = LockManager::in_memory();
    let service =
        LockLayer::new(locks.clone(), by_path).layer(service_fn(async |_: Request<String>| {
            tokio::task::yield_now().await;
            if true {
                panic!("as planned");
            }
            Served::Ok(Response::new(String::new()))
        }));
    assert!(
        tokio::spawn(service.oneshot(get("/a")))
            .await
            .unwrap_err()
            .is_panic()
    );
    support::released(&locks, &name("a")).await;
}

#[tokio::test(start_paused = true)]
async fn an_inner_error_passes_through_and_releases() {
    let locks = LockManager::in_memory();
    let service =
        LockLayer::new(locks.clone(), by_path).layer(service_fn(async |_: Request<String>| {
            Err::<Response<String>, _>("the inner error")
        }));
    let error = service.oneshot(get("/a")).await.unwrap_err();
    assert_eq!(error, "the inner error");
    assert!(!locks.inspect(name("a")).await.unwrap().held);
}

#[tokio::test(start_paused = true)]
async fn a_string_key_is_taken_byte_for_byte() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("tenant:{1}/é").acquire().await.unwrap();
    let key = |_: &Request<String>| Some(String::from("tenant:{1}/é"));
    let service = LockLayer::new(locks, key)
        .wait(NO_WAIT)
        .layer(service_fn(never));
    let response = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), StatusCode::LOCKED);
}

#[tokio::test(start_paused = true)]
async fn a_reply_may_be_empty_or_a_closure() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex(name("a")).acquire().await.unwrap();
    let layer = LockLayer::new(locks, by_path).wait(NO_WAIT);

    let empty = layer.clone().reply(EmptyBody).layer(service_fn(never));
    let response = empty.oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), StatusCode::LOCKED);
    assert!(retry_after(&response).is_some() && response.body().is_empty());

    let own = layer.reply(|refusal: Refusal| {
        assert_eq!(refusal.kind(), RefusalKind::Busy);
        assert!(matches!(refusal.error(), Some(LockError::Busy { .. })));
        Served::Ok(Response::new("come back later".into()))
    });
    let response = own.layer(service_fn(never)).oneshot(get("/a")).await;
    assert_eq!(response.unwrap().body(), "come back later");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_http_takes_locks_too() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("account:7").acquire().await.unwrap();
    let layer = LockLayer::from_key(locks, |account: &u64| Some(format!("account:{account}")))
        .wait(NO_WAIT)
        .reply(|refusal: Refusal| Err(tower::BoxError::from(refusal)));
    let service = layer.layer(service_fn(async |account: u64| {
        Ok::<_, tower::BoxError>(account * 2)
    }));
    assert_eq!(service.clone().oneshot(8).await.unwrap(), 16);
    let error = service.oneshot(7).await.unwrap_err();
    assert!(error.is::<Refusal>(), "{error:?}");
}
