//! The types that a caller touches.

pub mod blocking;
pub(crate) mod builder;
pub(crate) mod clients;
pub(crate) mod config;
pub(crate) mod convert;
pub(crate) mod election;
mod global;
pub(crate) mod guard;
#[cfg(feature = "tls-rustls")]
mod handshake;
mod health;
pub(crate) mod ids;
pub(crate) mod info;
pub(crate) mod latch;
pub(crate) mod lease;
pub(crate) mod macro_support;
pub(crate) mod manager;
pub(crate) mod multi;
pub(crate) mod observer;
pub(crate) mod plain_semaphore;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis_server;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod semaphore;
pub(crate) mod snapshot;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod transaction;
