//! Parts that stores of several processes share.

#[cfg(feature = "tls-rustls")]
pub(crate) mod certificates;
pub(crate) mod closed;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod hosts;
pub(crate) mod login;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod names;
pub(crate) mod outage;
pub(crate) mod polling;
pub(crate) mod round_trip;
pub(crate) mod seen_processes;
pub(crate) mod server_clock;
pub(crate) mod slots;
pub(crate) mod standing;
pub(crate) mod tls_refusal;
pub(crate) mod topic;
pub(crate) mod undo;
pub(crate) mod uptime;
pub(crate) mod url_options;
pub(crate) mod wanted;
