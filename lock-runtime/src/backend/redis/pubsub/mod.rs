//! Listening: the pub/sub connection, and the listeners of each channel.

mod connection;
pub(crate) mod messages;
pub(crate) mod reservations;
pub(crate) mod subscriber;
pub(crate) mod topics;
