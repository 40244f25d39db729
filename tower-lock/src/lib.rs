//! A Tower layer that holds a distributed lock per request key, for axum, tonic and any other Tower service.
//!
//! Requests with the same key are served one at a time, by whichever process they reach; requests with other keys,
//! and requests without one, run meanwhile.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use lock_runtime::{LockManager, LockName};
//! use tower_lock::LockLayer;
//!
//! # async fn pay() {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::connect("redis://127.0.0.1/").await?;
//! let per_order = LockLayer::new(locks, |request: &http::Request<_>| {
//!     let order = request.uri().path().strip_prefix("/orders/")?;
//!     Some(LockName::from("order:").with(order))
//! });
//! let app: Router = Router::new()
//!     .route("/orders/{id}", post(pay))
//!     .layer(per_order.wait(Duration::from_secs(2)).label("order"));
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! For each request the layer asks the key for a lock name, acquires that lock, calls the inner service, releases,
//! and returns the response. The lock is held from before the inner `call` until the response future is done, and
//! renewed meanwhile; the response is delivered after the release was confirmed, or after the call timeout at the
//! latest. A response **body** that is streamed afterwards is not under the lock.
//!
//! What the handler requests in its own task is nested in the layer's hold: the same lock, from an attribute on a
//! service method or from a second layer, re-enters instead of waiting for itself. Work that the handler *spawns*
//! is not nested and would wait: pass the lineage on with `Lease::scope`, or use another name.
//!
//! The layer is the outer lock, and the handler knows nothing of it: it has no fencing token. Where a handler writes
//! to something that checks tokens, use the attribute or [`LockRequest::run`](lock_runtime::LockRequest::run) there.
//!
//! # When it admits and refuses
//!
//! A refusal is a response; the service's error type stays the inner one's, and inner errors pass through. Refused
//! requests never reach the inner service, unless the table says so.
//!
//! | what happens | [`RefusalKind`] | status | `Retry-After` |
//! |---|---|---|---|
//! | the key is `None` | | the inner response; no lock, no cost | |
//! | the lock is free, or becomes free within the wait | | the inner response | |
//! | the lock is busy and the wait is zero | `Busy` | 423 Locked | yes |
//! | the lock is busy for the whole wait | `WaitedOut` | 503 | yes |
//! | too many waiters, for the key or in all | `Overloaded` | 503, at once | yes |
//! | the store is away for the whole wait, or the manager shuts down | `Unavailable` | 503 | yes |
//! | the lock is lost while the request is served | `Lost` | 503; the inner future is dropped at its current `.await` | yes |
//! | the lock is lost, but the response is finished | | the inner response, and a `tracing` warning | |
//! | the name is empty, too long, or has an empty value in it | `BadKey` | 400 | no |
//! | the store denies access, the key holds something else, an option is out of bounds | `Misconfigured` | 500, and a `tracing` error | no |
//!
//! `Retry-After` is 1 to 5 seconds, at random: it neither reveals the holder's lease nor brings the refused clients
//! back at once. Bodies name neither the lock nor the fault; [`Reply`] changes what is sent.
//!
//! Requests for one key are served in the order they came to this process; processes take turns as
//! `lock_runtime` documents. A client that disconnects while it waits leaves the queue, as soon as its server drops
//! the response future. While a request waits, its body is not read.
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
//! | max hold | none | [`LockLayer::max_hold`] |
//! | label of logs and metrics | the template of a `key!` name | [`LockLayer::label`] |
//! | reply | a problem document with the status above | [`LockLayer::reply`] |
//! | waiters | 20,000 per key and 100,000 per manager | `LockManagerBuilder::max_waiters` |
//!
//! # Keys
//!
//! A key is a closure that returns an owned name, or any [`LockKey`]. A `String` is a name byte for byte. **What a
//! client sent belongs through [`LockName::with`](lock_runtime::LockName::with)**, which escapes it; `format!` does
//! not.
//!
//! A closure whose request type cannot be inferred from where the layer is used needs it spelled out:
//! `|request: &http::Request<axum::body::Body>| …`.
//!
//! # Where to put it
//!
//! - *Inside* of authentication and rate limits: whoever may name a key may hold it. *Inside* of a timeout: a dropped
//!   future leaves the queue and releases. *Outside* of anything that answers without the handler, such as caches,
//!   only if those answers need the lock, too.
//! - The inner instance that said it was ready waits with its request. A concurrency limit *inside* of this layer
//!   is therefore used up by requests that wait for locks: put it outside to bound the waiters too, or nowhere and
//!   use the manager's caps.
//! - All instances of a service must use one store, one namespace and one key. A lock excludes only those who ask.
//! - With a proxy that retries 503 by itself, requests must be safe to repeat.
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
//!     let order = request.uri().path().strip_prefix("/orders/")?;
//!     Some(LockName::from("order:").with(order))
//! })
//! .wait(Duration::ZERO)
//! .layer(service_fn(async |_: Request<String>| {
//!     Ok::<_, Infallible>(Response::new(String::from("paid")))
//! }));
//!
//! let pay = || Request::post("/orders/17").body(String::new());
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
//! # Services that are not HTTP
//!
//! [`LockLayer::from_key`] takes a key over any request type, and [`LockLayer::reply`] a closure that makes the
//! service's own response or error out of a [`Refusal`].

mod body;
mod call;
mod crowd;
mod future;
mod key;
mod layer;
mod refusal;
mod reply;
mod service;
mod until;

pub use body::HeldBody;
pub use future::ResponseFuture;
pub use key::{AsyncKey, FindKey, Head, KeyFuture, LockKey, PerClient, RequestKey};
pub use layer::LockLayer;
pub use refusal::{Refusal, RefusalKind};
pub use reply::{AsError, EmptyBody, GrpcStatus, ProblemJson, Reply};
pub use service::LockService;
pub use until::{HoldUntil, UntilBodyEnd, UntilResponse};
