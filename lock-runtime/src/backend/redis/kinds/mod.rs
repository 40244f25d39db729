//! The requests of each kind of lock (keys, arguments, scripts, replies), and the requests that all kinds share.

pub(crate) mod acquire;
pub(crate) mod acquire_all;
pub(crate) mod clash;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod exclusive;
pub(crate) mod fair;
pub(crate) mod ids;
pub(crate) mod listed;
pub(crate) mod operators;
pub(crate) mod permits;
pub(crate) mod read_write;
pub(crate) mod release;
pub(crate) mod renewals;
pub(crate) mod request;
