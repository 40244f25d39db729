//! The caps on the requests that may wait: in all, for a key, and of a client. The clock is paused.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use lock_runtime::{LockManager, LockName};
use tokio::sync::watch;
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::{LockLayer, RequestKey};

use crate::support::{self, Served, get, retry_after, waiters};

/// Sends a request and returns its response, or `None` if there is none within 50 ms. The request then goes on waiting.
async fn sent<S>(service: &S, path: &str, client: Option<&str>) -> Option<Response<String>>
where
    S: tower::Service<Request<String>, Response = Response<String>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let mut request = get(path);
    if let Some(client) = client {
        let client = HeaderValue::from_str(client).unwrap();
        request.headers_mut().insert("x-client", client);
    }
    let mut response = tokio::spawn(service.clone().oneshot(request));
    let response = tokio::time::timeout(Duration::from_millis(50), &mut response).await;
    Some(response.ok()?.unwrap().unwrap())
}

fn refused(response: Option<Response<String>>) -> StatusCode {
    let response = response.expect("it is refused, and does not wait");
    assert!((1..=5).contains(&retry_after(&response).unwrap()));
    response.status()
}

fn by_client() -> RequestKey {
    RequestKey::new("client").header("x-client")
}

async fn served(_: Request<String>) -> Served {
    Ok(Response::new(String::new()))
}

async fn never(_: Request<String>) -> Served {
    pending().await
}

#[tokio::test(start_paused = true)]
async fn caps_are_answered_at_once_503_or_for_one_client_429() {
    let locks = LockManager::in_memory();
    let mut guards = vec![];
    for name in ["path:a", "path:b", "path:c"] {
        guards.push(locks.mutex(name).acquire().await.unwrap());
    }
    let service = LockLayer::new(locks.clone(), support::by_path)
        .wait(Duration::from_secs(60))
        .max_waiters_per_key(2)
        .max_waiters(4)
        .max_waiters_per_client(1, by_client())
        .layer(service_fn(never));
    // Two requests for key a may wait. One of them is that of client 1, which may have no other.
    assert!(sent(&service, "/a", None).await.is_none());
    assert!(sent(&service, "/a", Some("1")).await.is_none());
    let of_key = refused(sent(&service, "/a", Some("2")).await);
    assert_eq!(of_key, StatusCode::SERVICE_UNAVAILABLE);
    let of_client = refused(sent(&service, "/b", Some("1")).await);
    assert_eq!(of_client, StatusCode::TOO_MANY_REQUESTS);
    // The cap of key a does not count for b and c, and the refused request of client 2 is not counted.
    assert!(sent(&service, "/b", Some("2")).await.is_none());
    assert!(sent(&service, "/c", Some("4")).await.is_none());
    let of_all = refused(sent(&service, "/b", Some("5")).await);
    assert_eq!(of_all, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(waiters(&locks, &LockName::from("path:b")).await, 1);

    // A request that is admitted counts no longer: the one for c is served, which makes room for one of client 3.
    guards.pop();
    support::eventually("c is served", async || {
        waiters(&locks, &LockName::from("path:c")).await == 0
    })
    .await;
    assert!(sent(&service, "/c", Some("3")).await.is_none());
    let of_client = refused(sent(&service, "/b", Some("3")).await);
    assert_eq!(of_client, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn requests_that_name_no_client_are_counted_as_one_client() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("path:a").acquire().await.unwrap();
    let service = LockLayer::new(locks.clone(), support::by_path)
        .wait(Duration::from_secs(60))
        .max_waiters_per_client(2, by_client())
        .layer(service_fn(served));
    for _ in 0..2 {
        assert!(sent(&service, "/a", None).await.is_none());
    }
    let third = refused(sent(&service, "/a", None).await);
    assert_eq!(third, StatusCode::TOO_MANY_REQUESTS);
    // An empty header does not get around the cap: such requests are counted together as well, apart from clients with
    // a name.
    for _ in 0..2 {
        assert!(sent(&service, "/a", Some("")).await.is_none());
    }
    let malformed = refused(sent(&service, "/a", Some("")).await);
    assert_eq!(malformed, StatusCode::TOO_MANY_REQUESTS);
    assert!(sent(&service, "/a", Some("1")).await.is_none());
    // Requests that need no lock do not wait, and are not counted.
    let passed = sent(&service, "/", None).await.expect("it needs no lock");
    assert_eq!(passed.status(), StatusCode::OK);

    guard.release().await.unwrap();
    support::eventually("all were served", async || {
        waiters(&locks, &LockName::from("path:a")).await == 0
    })
    .await;
    let served = sent(&service, "/a", None).await.expect("nobody waits");
    assert_eq!(served.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn requests_whose_key_is_still_looked_up_are_counted() {
    let (open, opened) = watch::channel(false);
    // Each service gets a layer of its own, because clones of a layer share their counts.
    let layer = || {
        let opened = opened.clone();
        LockLayer::from_async_key(LockManager::in_memory(), move |parts| {
            let mut opened = opened.clone();
            let path = parts.uri.path().to_owned();
            Box::pin(async move {
                opened.wait_for(|open| *open).await.unwrap();
                (path != "/").then(|| LockName::from("path:").with(&path))
            })
        })
    };
    let of_clients = layer().max_waiters_per_client(1, by_client()).read_write();
    let of_clients = of_clients.layer(service_fn(served));
    let all = layer().max_waiters(2).layer(service_fn(served));

    assert!(sent(&of_clients, "/a", None).await.is_none());
    assert!(sent(&of_clients, "/b", Some("1")).await.is_none());
    for client in [None, Some("1")] {
        let refused = refused(sent(&of_clients, "/c", client).await);
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(sent(&all, "/a", None).await.is_none());
    // This request turns out to need no lock; until then it is counted.
    assert!(sent(&all, "/", None).await.is_none());
    let of_all = refused(sent(&all, "/c", None).await);
    assert_eq!(of_all, StatusCode::SERVICE_UNAVAILABLE);

    // A request whose key was found, or that turned out to need none, makes room again.
    open.send_replace(true);
    for _ in 0..5 {
        let served = sent(&all, "/c", None).await.expect("there is room");
        assert_eq!(served.status(), StatusCode::OK);
        let served = sent(&of_clients, "/c", None).await.expect("there is room");
        assert_eq!(served.status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_while_its_key_is_looked_up_makes_room() {
    let layer = LockLayer::from_async_key(LockManager::in_memory(), |_| {
        Box::pin(pending::<Option<LockName>>())
    });
    let service = layer.max_waiters(1).layer(service_fn(never));
    for _ in 0..3 {
        let waiting = tokio::spawn(service.clone().oneshot(get("/a")));
        tokio::task::yield_now().await;
        let second = refused(sent(&service, "/a", None).await);
        assert_eq!(second, StatusCode::SERVICE_UNAVAILABLE);
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
}
