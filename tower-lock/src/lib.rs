//! A Tower layer that holds a distributed lock per request key, for axum, tonic and any other Tower service.
//!
//! Requests with the same key are served one at a time, no matter which processes they reach. Requests with other
//! keys, and requests without one, run meanwhile.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use lock_runtime::LockManager;
//! use tower_lock::{LockLayer, RequestKey};
//!
//! # async fn pay() {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::connect("redis://127.0.0.1/").await?;
//! // The lock `order:17` around every request to `/orders/17`.
//! let order = RequestKey::new("order").path_segment_as::<u64>(1);
//! let app: Router = Router::new()
//!     .route("/orders/{id}", post(pay))
//!     .route_layer(LockLayer::from_key(locks, order).wait(Duration::from_secs(2)));
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! For each request the layer asks the key for a lock name, acquires that lock, calls the inner service, releases,
//! and returns the response. The lock is held from before the inner `call` until the response future is done, and
//! renewed meanwhile; the response is delivered after the release was confirmed, or after the call timeout at the
//! latest. A response **body** that is streamed afterwards is not under the lock, unless the layer holds
//! [until the body's end](LockLayer::until_body_end).
//!
//! Locks that the handler requests in its own task are nested in the layer's hold: the same lock, from an attribute
//! on a service method or from a second layer, re-enters instead of waiting for itself. Three things do not re-enter and
//! would wait: work that the handler *spawns* (pass the hold on with `Lease::scope`, or use another name), a layer
//! inside of a `tower::Buffer`, which calls it from another task, and permits of a
//! [`semaphore`](LockLayer::semaphore), of which each request takes its own.
//!
//! A handler that writes to something that checks fencing tokens needs the layer's lease. Any handler gets it from
//! [`Lease::current`](lock_runtime::Lease::current), and a handler of axum also from the extractor `HeldLease` (feature
//! `axum`). The lease also tells whether the lock is still held, and passes the hold on to tasks that the handler
//! spawns.
//!
//! # When it admits and refuses
//!
//! A refusal is a response. The service's error type remains that of the inner service, and inner errors pass through.
//! Refused requests never reach the inner service, unless the table says so.
//!
//! | what happens | [`RefusalKind`] | status | `Retry-After` |
//! |---|---|---|---|
//! | the key is `None`: a closure's, or that of an [`optional`](RequestKey::optional) key | | the inner response; no lock | |
//! | the lock is free, or becomes free within the wait | | the inner response | |
//! | the lock is busy and the wait is zero | `Busy` | 423 Locked | yes |
//! | the lock is busy for the whole wait | `WaitedOut` | 503 | yes |
//! | too many waiters, for the key or in all | `Overloaded` | 503, at once | yes |
//! | too many waiters of this client | `ClientOverloaded` | 429, at once | yes |
//! | the store is away for the whole wait, or the manager shuts down | `Unavailable` | 503 | yes |
//! | the lock is lost while the request is served | `Lost` | 503; the inner future is dropped at its current `.await` | yes |
//! | the lock is lost, but the response is finished | | the inner response, and a `tracing` warning | |
//! | a handler's own lock is lost, but its work is finished (`on_lost = error`) | `LostCompleted` | 500 | no |
//! | the lock is lost while the body is sent, and the layer holds until its end | | the body ends with an error | |
//! | the connection is upgraded (101), and the layer holds until the body's end | `Misconfigured` | 500, and a `tracing` error | no |
//! | a part of the key is missing, or not of its type: the reply names it | `BadKey` | 400 | no |
//! | the name is empty, too long, or has an empty or ambiguous value in it | `BadKey` | 400 | no |
//! | the route cannot have a part of the key | `Misconfigured` | 500, and a `tracing` error that names the part | no |
//! | the store denies access (after the whole wait, if it served such a request before), the key holds something else, permits were not set, a write is asked for under a read, an option is out of bounds, the manager's runtime has ended | `Misconfigured` | 500, and a `tracing` error | no |
//!
//! `Retry-After` is 1 to 5 seconds, at random: it neither reveals the holder's lease nor brings the refused clients
//! back at once. Bodies name neither the lock nor the fault; [`Reply`] changes what is sent.
//!
//! Requests for one key are served in the order they came to this process; processes take turns as
//! `lock_runtime` documents. A client that disconnects while it waits leaves the queue, as soon as its server drops
//! the response future: [not every server does so at once](#clients-that-go-while-they-wait). While a request waits,
//! its body is not read.
//!
//! A request that was ended by a loss may have taken effect in part: dropping its future stops neither tasks that it
//! spawned nor a statement that it had already sent. A panic in the inner service releases the lock.
//!
//! # Defaults
//!
//! | option | default | see |
//! |---|---|---|
//! | wait | the manager's: 10 s | [`LockLayer::wait`] |
//! | lease | the manager's: 30 s, renewed every third | [`LockLayer::lease`] |
//! | mode | every request runs alone; read and write by method, fair, or several at a time when asked | [`LockLayer::read_write`], [`LockLayer::fair`], [`LockLayer::semaphore`] |
//! | max hold | 60 s, with the time to read the request body | [`LockLayer::max_hold`], [`LockLayer::no_max_hold`] |
//! | kept for the next request | no: a lock is given back at once | [`LockLayer::keep_for`] |
//! | label of logs and metrics | the word of a [`RequestKey`], the template of a `key!` name | [`LockLayer::label`] |
//! | reply | a problem document with the status above | [`LockLayer::reply`] |
//! | waiters | 20,000 per key and 100,000 per manager | `LockManagerBuilder::max_waiters`, [`LockLayer::max_waiters`], [`LockLayer::max_waiters_per_key`] |
//! | waiters per client | no cap; requests without a client are one client | [`LockLayer::max_waiters_per_client`] |
//! | held until | the response future is done | [`LockLayer::until_body_end`] |
//!
//! # Keys
//!
//! | key | for |
//! |---|---|
//! | [`RequestKey`] | values of the head: headers, query, path, host, principal; decoded, escaped, typed, checked |
//! | a closure over `&http::Request<_>`: [`LockLayer::new`] | anything else that needs no `.await` |
//! | a closure over `&mut http::request::Parts`: [`LockLayer::from_async_key`] | what must be looked up |
//! | [`LockKey`]: [`LockLayer::from_key`] | types of your own, requests that are not HTTP |
//!
//! A closure returns an owned name; a `String` is a name byte for byte. **Pass what a client sent through
//! [`LockName::with`](lock_runtime::LockName::with)**, which escapes it; `format!` does not.
//!
//! A closure whose request type cannot be inferred from where the layer is used needs it spelled out:
//! `|request: &http::Request<axum::body::Body>| …`.
//!
//! # Locks that handlers take
//!
//! A handler that takes locks by hand, or calls functions with the attribute, answers as the layer does: a
//! [`LockError`](lock_runtime::LockError) becomes a [`Refusal`] by `?`, and with the feature `axum` that is a response.
//!
//! ```
//! use lock_runtime::{LockManager, distributed_lock};
//! use tower_lock::Refusal;
//!
//! #[distributed_lock(key = "order:{id}", wait = "2s", manager = locks)]
//! async fn settle(locks: &LockManager, id: u64) -> Result<String, lock_runtime::LockError> {
//!     Ok(format!("order {id} is settled"))
//! }
//!
//! async fn handler(locks: LockManager) -> Result<String, Refusal> {
//!     Ok(settle(&locks, 17).await?)
//! }
//! # let _ = handler(LockManager::in_memory());
//! ```
//!
//! With the feature `tonic`, `settle(…).await.map_err(Refusal::from)?` works in a method whose error is
//! `tonic::Status`.
//!
//! # Where to put it
//!
//! - *Inside* of authentication and rate limits: a client that may name a key may hold it. *Inside* of a timeout: a dropped
//!   future leaves the queue and releases. *Outside* of anything that answers without the handler, such as caches,
//!   only if those answers need the lock, too.
//! - The inner instance that said it was ready waits with its request. A concurrency limit *inside* of this layer
//!   is therefore used up by requests that wait for locks: put it outside to bound the waiters too, or leave it out
//!   and use the manager's caps.
//! - All instances of a service must use one store, one namespace and one key. A lock excludes only callers that ask
//!   for it.
//! - In axum by `Router::route_layer`, after the routes: `Router::layer` also runs for paths without a route, which are then
//!   refused for a part that they lack, instead of answered with 404. Either runs for methods that the route does not serve,
//!   too, before they are answered with 405: with a [`min_hold`](LockLayer::min_hold), or where anybody may come, put the
//!   layer on the methods, `post(pay).route_layer(…)`.
//! - With a proxy that retries 503 by itself, requests must be safe to repeat.
//!
//! # Slow uploads
//!
//! A handler that reads its request body under the lock holds the lock for as long as the client takes to send it. A
//! client that sends a byte a second keeps everybody else from the key: **a slow upload is an attack on everybody else
//! who needs that lock.** [`max_hold`](LockLayer::max_hold) ends it after 60 s, and the attacker may then come again.
//! To prevent it, read bodies *before* the lock, in a layer outside of this one, with a limit on their size:
//!
//! ```
//! use axum::Router;
//! use axum::body::{Body, to_bytes};
//! use axum::http::{Request, Response, StatusCode};
//! use axum::middleware::{Next, from_fn};
//! # use axum::routing::post;
//! # use lock_runtime::LockManager;
//! # use tower_lock::{LockLayer, RequestKey};
//!
//! async fn read_body_first(request: Request<Body>, next: Next) -> Result<Response<Body>, StatusCode> {
//!     let (head, body) = request.into_parts();
//!     let body = to_bytes(body, 1_000_000).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
//!     Ok(next.run(Request::from_parts(head, body.into())).await)
//! }
//!
//! # let locks = LockManager::in_memory();
//! # let order = RequestKey::new("order").path_segment_as::<u64>(1);
//! # async fn pay() {}
//! let app: Router = Router::new()
//!     .route("/orders/{id}", post(pay))
//!     .layer(LockLayer::from_key(locks, order))
//!     .layer(from_fn(read_body_first));
//! # drop(app);
//! ```
//!
//! A timeout around all of it bounds how long the body may take. Memory is bounded by the limit times the number of
//! requests: bound that, too.
//!
//! # WebSockets
//!
//! The response to a WebSocket's request is over before its first message. The lock of a layer ends with it, so two
//! connections for one key would be open at once; [`until_body_end`](LockLayer::until_body_end) refuses such a response.
//! Acquire the lock in the task that serves the connection, without a wait, and close the connection if the lock is busy or
//! lost. (This is not compiled here, because it needs axum's feature `ws`.)
//!
//! ```ignore
//! async fn watch(State(locks): State<LockManager>, Path(id): Path<u64>, upgrade: WebSocketUpgrade) -> Response {
//!     upgrade.on_upgrade(move |socket| async move {
//!         let one_at_a_time = locks.mutex(key!("watch:{id}")).wait(Duration::ZERO);
//!         // Dropping the socket closes it: at once if the lock is busy, and when it is lost.
//!         if let Err(error) = one_at_a_time.run(|_lease| serve(socket)).await {
//!             tracing::info!(%error, "a WebSocket was closed");
//!         }
//!     })
//! }
//! ```
//!
//! # CORS
//!
//! A browser asks by `OPTIONS`, without the headers of the request to come, whether it may send that request. Such a
//! preflight must reach no lock: put `CorsLayer` of tower-http *outside* of this layer, which in axum is below it. It
//! then answers preflights itself, and browsers can read refusals, too, because it adds its headers to them. A layer
//! with [`read_write`](LockLayer::read_write) lets `OPTIONS` pass in any place.
//!
//! ```ignore
//! let app = Router::new()
//!     .route("/orders/{id}", get(show).put(change))
//!     .route_layer(LockLayer::from_key(locks, order).read_write())
//!     .layer(CorsLayer::permissive());
//! ```
//!
//! # Clients that go while they wait
//!
//! A server drops the response future of a client that has gone once it notices. Over HTTP/2 it notices at once. Over
//! HTTP/1, hyper does not read from a connection while nobody reads the request's body, and so does not see the
//! connection end. With bodies of 60 kB and more that were unread, none of 20 clients that had gone was noticed, and
//! each one's handler ran when its turn came. With bodies up to 16 kB, which hyper read together with the head, all
//! were noticed within 16 ms. The layer cannot see that a client has gone, either, so such a request keeps its place in
//! the queue for up to [`wait`](LockLayer::wait). With bodies of any size that were
//! [read before the lock](#slow-uploads), all were noticed within 43 ms.
//!
//! # Example
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response, StatusCode};
//! use lock_runtime::{LockManager, LockName};
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_lock::LockLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::in_memory();
//! let service = LockLayer::new(locks.clone(), |request: &Request<String>| {
//!     let order = request.headers().get("x-order")?.to_str().ok()?;
//!     Some(LockName::from("order:").with(order))
//! })
//! .wait(Duration::ZERO)
//! .layer(service_fn(async |_: Request<String>| {
//!     Ok::<_, Infallible>(Response::new(String::from("paid")))
//! }));
//!
//! let pay = || Request::post("/pay").header("x-order", "17").body(String::new());
//! let response = service.clone().oneshot(pay()?).await?;
//! assert_eq!(response.body(), "paid");
//!
//! // Somebody else holds order 17, in this process or in any other.
//! let guard = locks.mutex("order:17").acquire().await?;
//! let response = service.clone().oneshot(pay()?).await?;
//! assert_eq!(response.status(), StatusCode::LOCKED);
//! assert!(response.headers().contains_key("retry-after"));
//!
//! guard.release().await?;
//! assert_eq!(service.oneshot(pay()?).await?.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```
//!
//! # An `Idempotency-Key` that holds
//!
//! Two identical requests at the same time both find no stored answer, and both run. Hold the key's lock around the
//! handler, and let the handler look for the answer first and store it last, under the lock:
//!
//! ```
//! # use lock_runtime::LockManager;
//! # use std::time::Duration;
//! use tower_lock::{LockLayer, RequestKey};
//!
//! let once = RequestKey::new("idempotency").header("x-user").method().path().header("idempotency-key");
//! let layer = LockLayer::from_key(LockManager::in_memory(), once).wait(Duration::from_secs(5));
//! # drop(layer);
//! ```
//!
//! The lock makes the second request wait; the stored answer, committed before the handler returns, keeps it from
//! running again.
//!
//! # gRPC
//!
//! tonic's services are Tower services over HTTP: the same keys serve them, and [`GrpcStatus`] answers as tonic
//! does: `.reply(GrpcStatus)`. `RequestKey::new("transfer").header("x-account")` reads the metadata entry `x-account`. A binary
//! entry (`x-account-bin`) has several spellings for one value, so decode it: [`RequestKey::value`]. A streaming
//! method's response future is done when its stream begins: hold [until the body's end](LockLayer::until_body_end)
//! to lock the stream as well.
//!
//! # Services that are not HTTP
//!
//! [`LockLayer::from_key`] takes a key over any request type. [`AsError`] turns a [`Refusal`] into the service's own
//! error, and a closure for [`LockLayer::reply`] turns it into an error or a response.
//!
//! # Cost
//!
//! `cargo bench -p tower-lock` compares the layer with [`LockRequest::run`](lock_runtime::LockRequest::run) written
//! by hand around the same service. On the memory store the two cost the same, about 2 µs a call, and a request
//! without a key pays less than 0.1 µs. The wait for a lock is one boxed future per request; the inner call is not
//! boxed.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `axum` | off | `RequestKey::path_param`, `path_param_as` and `matched_path`; the whole path below `nest`; the extractor `HeldLease`; a [`Refusal`] is a response |
//! | `metrics` | off | the counter `lock_layer_passed_total`, beside the metrics of `lock-runtime`, whose feature it turns on |
//! | `tonic` | off | a [`Refusal`] becomes a `tonic::Status` by `From` |
//!
//! # Panics
//!
//! A panic in a key, a reply or the inner service passes through and releases. The layer's own futures panic only if they
//! are polled after they have completed, with `polled after complete`, as tower's do.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod call;
mod future;
mod hold_until;
mod key;
mod layer;
#[cfg(feature = "axum")]
mod lease;
mod metrics;
mod plan;
mod refusal;
mod reply;
mod service;
mod waiters;

pub use key::{Head, LockKey, RequestKey};
pub use layer::LockLayer;
#[cfg(feature = "axum")]
pub use lease::{HeldLease, NoLease};
pub use refusal::{Refusal, RefusalKind};
pub use reply::{AsError, EmptyBody, GrpcStatus, ProblemJson, Reply};
pub use service::LockService;

/// The types in the signatures of layers and services. You need to name them only in the type of a field.
pub mod types {
    pub use crate::body::HeldBody;
    pub use crate::future::ResponseFuture;
    pub use crate::hold_until::{HoldUntil, UntilBodyEnd, UntilResponse};
    pub use crate::key::{AsyncKey, FindKey, KeyFuture, PerClient, ReadWrite};
    pub use crate::layer::KeyClosure;
}
