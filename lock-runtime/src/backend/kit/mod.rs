//! Parts that stores of several processes share.

#[cfg(all(
    feature = "tls-rustls",
    any(feature = "mysql", feature = "redis", feature = "postgres")
))]
pub(crate) mod certificates;
#[cfg(feature = "redis")]
pub(crate) mod closed;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod hosts;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod login;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod names;
pub(crate) mod outage;
#[cfg(any(feature = "mysql", feature = "postgres", test))]
pub(crate) mod polling;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod round_trip;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod seen_processes;
pub(crate) mod server_clock;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres", test))]
pub(crate) mod slots;
pub(crate) mod standing;
#[cfg(any(
    feature = "redis",
    all(feature = "tls-rustls", any(feature = "mysql", feature = "postgres"))
))]
pub(crate) mod tls_refusal;
pub(crate) mod topic;
pub(crate) mod undo;
pub(crate) mod uptime;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod url_options;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod wanted;
