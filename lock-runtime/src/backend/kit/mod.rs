//! What every store over a network needs.

pub(crate) mod outage;
pub(crate) mod server_clock;
pub(crate) mod topic;
pub(crate) mod uptime;

/// Why a backend that was closed answers nothing.
pub(crate) const CLOSED: &str = "the lock manager was shut down";
/// Why a backend answers nothing whose runtime has ended.
pub(crate) const GONE: &str = "the runtime that built the lock manager is gone";
