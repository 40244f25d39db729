//! What every store over a network needs.

#[cfg(all(
    feature = "tls-rustls",
    any(feature = "mysql", feature = "redis", feature = "postgres")
))]
pub(crate) mod certificates;
#[cfg(any(feature = "mysql", feature = "redis", feature = "postgres"))]
pub(crate) mod login;
pub(crate) mod outage;
#[cfg(any(feature = "mysql", feature = "postgres", test))]
pub(crate) mod polling;
pub(crate) mod server_clock;
pub(crate) mod standing;
#[cfg(any(
    feature = "redis",
    all(feature = "tls-rustls", any(feature = "mysql", feature = "postgres"))
))]
pub(crate) mod tls_refusal;
pub(crate) mod topic;
pub(crate) mod uptime;
