//! Values that the rest is made of. Nothing here knows anything else of the crate; `clock` alone reads clocks.

pub(crate) mod backoff;
pub(crate) mod channels;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod count;
pub(crate) mod decimal;
#[allow(
    dead_code,
    reason = "the attribute's file: it also writes durations, for messages"
)]
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod handshake;
pub(crate) mod health;
pub(crate) mod holder;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod label;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod refusal;
pub(crate) mod replicas;
pub(crate) mod store;
pub(crate) mod ttl;
