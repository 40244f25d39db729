//! What every store over a network needs.

pub(crate) mod outage;
#[cfg(any(feature = "mysql", test))]
pub(crate) mod polling;
pub(crate) mod server_clock;
pub(crate) mod standing;
pub(crate) mod topic;
pub(crate) mod uptime;
