//! Listening: the pub/sub connection, and the listeners of each channel.

pub(crate) mod subscribe;
pub(crate) mod topics;
