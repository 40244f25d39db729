//! What every store over a network needs.

#[cfg(feature = "redis")]
pub(crate) mod server_clock;
pub(crate) mod topic;
