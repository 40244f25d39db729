//! The layer around services, poll by poll, and in real servers.
#![allow(missing_docs)]

mod axum;
mod bodies;
mod bounds;
mod calls;
mod caps;
mod departures;
#[cfg(all(feature = "axum", feature = "tonic"))]
mod handlers;
mod idempotency;
mod keys;
mod read_write;
mod readiness;
mod replies;
#[cfg(feature = "axum")]
mod router_keys;
mod sharing;
mod test_util;
mod tonic;

#[path = "../support/mod.rs"]
mod support;
