//! Listening: the pub/sub connection, and who hears what.

pub(crate) mod subscribe;
pub(crate) mod topics;
