//! The keys: those that are made from a request's parts, and asynchronous ones.

use std::time::Duration;

use http::request::{Builder, Parts};
use http::{HeaderValue, Request, Response, StatusCode};
use lock_runtime::{LockManager, LockName};
use tower::{Layer, ServiceExt, service_fn};
use tower_lock::types::KeyFuture;
use tower_lock::{LockKey, LockLayer, RequestKey};

use crate::support::{Served, get};

fn name(key: &RequestKey, request: Builder) -> Option<String> {
    let name = key.lock_name(&request.body(()).unwrap())?;
    Some(name.as_str().to_owned())
}

/// Returns the layer's answer to a request whose key may be bad, fine or missing.
async fn answer(key: RequestKey, request: Builder) -> Response<String> {
    let service = LockLayer::from_key(LockManager::in_memory(), key).layer(service_fn(
        async |_: Request<String>| Served::Ok(Response::new(String::new())),
    ));
    let request = request.body(String::new()).unwrap();
    service.oneshot(request).await.unwrap()
}

async fn status(key: RequestKey, request: Builder) -> StatusCode {
    answer(key, request).await.status()
}

#[test]
fn a_key_is_put_together_from_parts() {
    #[derive(Clone)]
    struct User {
        id: u64,
    }
    let key = RequestKey::new("order")
        .method()
        .header("X-Tenant")
        .query("id")
        .path_segment(1)
        .extension(|user: &User| user.id)
        .value(|head| head.uri().path().len().checked_sub(1));
    let request = Request::post("/orders/17?x=1&id=a%20b+c")
        .header("x-tenant", "acme:1")
        .extension(User { id: 7 });
    assert_eq!(
        name(&key, request).unwrap(),
        "order:POST:acme%3A1:a%20b%20c:17:7:9"
    );
}

#[test]
fn one_resource_has_one_name_however_it_is_encoded() {
    let segment = RequestKey::new("o").path_segment(1);
    let query = RequestKey::new("o").query("id");
    let path = RequestKey::new("o").path();
    let of = |key, uri: &str| name(key, Request::get(uri)).unwrap();
    assert_eq!(of(&segment, "/orders/%317"), of(&segment, "/orders/17"));
    assert_eq!(of(&query, "/?id=%317"), of(&query, "/?%69d=17"));
    assert_eq!(of(&path, "/%6Frders/17"), of(&path, "/orders/17"));
}

#[test]
fn a_typed_part_is_one_name_for_all_texts_of_one_value() {
    let key = || RequestKey::new("o");
    for spelling in ["17", "017", "+17", "%317"] {
        let segment = key().path_segment_as::<u64>(1);
        let request = Request::get(format!("/orders/{spelling}"));
        assert_eq!(name(&segment, request).unwrap(), "o:17", "{spelling}");
    }
    for spelling in ["17", "017", "%2B17"] {
        let query = key().query_as::<u64>("id");
        let request = Request::get(format!("/?id={spelling}"));
        assert_eq!(name(&query, request).unwrap(), "o:17", "{spelling}");
    }
    for spelling in ["::1", "0:0:0:0:0:0:0:1"] {
        let header = key().header_as::<std::net::IpAddr>("x-for");
        let request = Request::get("/").header("x-for", spelling);
        assert_eq!(
            name(&header, request).unwrap(),
            "o:%3A%3A1",
            "its `Display`, escaped"
        );
    }
}

#[test]
fn a_host_is_one_name_in_the_uri_and_in_the_header() {
    let key = RequestKey::new("host").host();
    for request in [
        Request::get("https://example.org/"),
        Request::get("https://Example.org:8443/").header("host", "example.org"),
        Request::get("/").header("host", "EXAMPLE.ORG"),
        Request::get("/").header("host", "example.org.:80"),
    ] {
        assert_eq!(name(&key, request).unwrap(), "host:example.org");
    }
    let none = Request::get("/").body(()).unwrap();
    let refusal = key.find_name(&none).unwrap_err();
    assert_eq!(refusal.detail(), "The host is missing.");
    let two = Request::get("https://example.org/").header("host", "other.org");
    let refusal = key.find_name(&two.body(()).unwrap()).unwrap_err();
    assert_eq!(refusal.detail(), "The host is given twice.");
}

#[test]
fn different_values_have_different_names() {
    let two = RequestKey::new("o").header("a").header("b");
    let of = |a: &str, b: &str| name(&two, Request::get("/").header("a", a).header("b", b));
    assert_ne!(of("x:y", "z"), of("x", "y:z"));
    assert_ne!(of("x%3Ay", "z"), of("x:y", "z"));
    let path = RequestKey::new("o").path();
    let of = |uri: &str| name(&path, Request::get(uri));
    assert_ne!(of("/a/"), of("/a"));
    assert_ne!(of("/a//b"), of("/a/b"));
}

#[test]
fn a_segment_with_an_encoded_slash_is_refused_as_ambiguous() {
    for key in [
        RequestKey::new("o").path(),
        RequestKey::new("o").path_segment(0),
    ] {
        let request = Request::get("/a%2Fb").body(()).unwrap();
        let refusal = key.find_name(&request).unwrap_err();
        assert!(refusal.detail().ends_with(" is not valid."), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_part_is_400_or_where_it_is_optional_no_lock() {
    let key = || RequestKey::new("o");
    let keys = [
        (
            key().header("x-tenant"),
            "The header `x-tenant` is missing.",
        ),
        (key().query("id"), "The query parameter `id` is missing."),
        (
            key().path_segment(3),
            "The segment 3 of the path is missing.",
        ),
        (
            key().extension(|id: &u64| *id),
            "A part of the request's identity is missing.",
        ),
        (
            key().value(|_| None::<String>),
            "A part of the request is missing.",
        ),
    ];
    for (key, missing) in keys {
        let request = || Request::get("/orders/17?other=1");
        let response = answer(key.clone(), request()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{key:?}");
        let problem = response.body();
        assert!(
            problem.contains(&format!(r#""detail":"{missing}""#)),
            "{problem}"
        );
        let optional = key.optional();
        assert_eq!(name(&optional, request()), None, "{optional:?}");
        assert_eq!(status(optional, request()).await, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn an_impossible_header_name_is_500_even_for_an_optional_part() {
    let key = RequestKey::new("o").header("x-order:");
    for key in [key.clone(), key.optional()] {
        assert_eq!(
            status(key, Request::get("/")).await,
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}

/// A key of the service's own, whose names come from no template.
struct ByTenant;

impl<B> LockKey<Request<B>> for ByTenant {
    fn lock_name(&self, _: &Request<B>) -> Option<LockName> {
        Some("tenant:7".into())
    }

    fn label(&self) -> Option<&'static str> {
        Some("tenant")
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_labels_its_locks_unless_the_layer_does() {
    let locks = LockManager::in_memory();
    let layer = || LockLayer::from_key(locks.clone(), ByTenant);
    for (layer, label) in [(layer(), "tenant"), (layer().label("other"), "other")] {
        let served = service_fn(async |_: Request<String>| {
            Served::Ok(Response::new(locks.snapshot().holds[0].label.into()))
        });
        let response = layer.layer(served).oneshot(get("/")).await.unwrap();
        assert_eq!(response.body(), label);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_empty_undecodable_or_endless_value_is_400() {
    let header = || RequestKey::new("o").header("id");
    let query = || RequestKey::new("o").query("id");
    let segment = || RequestKey::new("o").path_segment(0);
    let get = Request::get::<&str>;
    let not_text = HeaderValue::from_bytes(b"\xff").unwrap();
    for (key, request) in [
        (header(), get("/").header("id", "1").header("id", "2")),
        (header(), get("/").header("id", "")),
        (header(), get("/").header("id", not_text)),
        (header(), get("/").header("id", "x".repeat(600))),
        (query(), get("/?id=1&id=1")),
        (query(), get("/?id=")),
        (segment(), get("/%ff")),
        (segment(), get("/")),
    ] {
        assert_eq!(status(key, request).await, StatusCode::BAD_REQUEST);
    }
}

#[test]
fn a_refusal_says_of_each_part_only_what_can_be_wrong_with_it() {
    let get = Request::get::<&str>;
    let not_text = HeaderValue::from_bytes(b"\xff").unwrap();
    let key = || RequestKey::new("o");
    for (key, request, says) in [
        (
            key().header("id"),
            get("/").header("id", "1").header("id", "2"),
            "The header `id` is given twice.",
        ),
        (
            key().header("id"),
            get("/").header("id", not_text),
            "The header `id` is not text.",
        ),
        (
            key().query("id"),
            get("/?id=1&id=1"),
            "The query parameter `id` is given twice.",
        ),
        (
            key().path_segment(0),
            get("/%ff"),
            "The segment 0 of the path is not text.",
        ),
        (key().path(), get("/%ff"), "The path is not text."),
        (
            key().query_as::<u64>("id"),
            get("/?id=seven"),
            "The query parameter `id` is not valid.",
        ),
        (
            key().host(),
            get("/").header("host", "a b"),
            "The host is not valid.",
        ),
    ] {
        let found = key.find_name(&request.body(()).unwrap());
        assert_eq!(found.unwrap_err().detail(), says);
    }
}

#[test]
fn one_key_serves_requests_with_any_body() {
    let key = RequestKey::new("o").path();
    let request = Request::new(vec![1_u8]);
    assert_eq!(key.lock_name(&Request::new(())), key.lock_name(&request));
}

fn session(parts: &mut Parts) -> KeyFuture<'_> {
    Box::pin(async move {
        let user = parts.headers.get("x-user")?.to_str().ok()?.to_owned();
        tokio::time::sleep(Duration::from_millis(5)).await;
        parts.extensions.insert(user.clone());
        Some(LockName::from("user:").with(&user))
    })
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_key_is_awaited_and_may_change_the_request() {
    let locks = LockManager::in_memory();
    let _guard = locks.mutex("user:2").acquire().await.unwrap();
    let service = LockLayer::from_async_key(locks, session)
        .wait(Duration::ZERO)
        .layer(service_fn(async |request: Request<String>| {
            let user = request.extensions().get::<String>().cloned();
            Served::Ok(Response::new(user.unwrap_or_default() + request.body()))
        }));
    let send = |user: Option<&str>| {
        let mut request = get("/");
        *request.body_mut() = "!".into();
        if let Some(user) = user {
            let user = HeaderValue::from_str(user).unwrap();
            request.headers_mut().insert("x-user", user);
        }
        service.clone().oneshot(request)
    };
    assert_eq!(send(Some("1")).await.unwrap().body(), "1!");
    assert_eq!(send(None).await.unwrap().body(), "!");
    let busy = send(Some("2")).await.unwrap();
    assert_eq!(busy.status(), StatusCode::LOCKED);
}
