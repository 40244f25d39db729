//! What every store over a network needs.

pub(crate) mod outage;
pub(crate) mod server_clock;
pub(crate) mod standing;
pub(crate) mod topic;
pub(crate) mod uptime;
