//! What a caller touches.

pub(crate) mod builder;
pub(crate) mod convert;
mod global;
pub(crate) mod guard;
pub(crate) mod info;
pub(crate) mod latch;
pub(crate) mod lease;
pub(crate) mod macro_support;
pub(crate) mod manager;
pub(crate) mod multi;
pub(crate) mod permit_call;
pub(crate) mod plain_semaphore;
pub(crate) mod quorum;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod semaphore;
pub(crate) mod snapshot;
