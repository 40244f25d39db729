//! The statements that each kind of lock sends.

pub(super) mod acquire;
pub(super) mod acquire_all;
pub(super) mod counters;
pub(super) mod directory;
pub(super) mod exclusive;
mod ids;
pub(super) mod operators;
pub(super) mod release;
pub(in crate::backend) mod renewals;
pub(super) mod seen;
mod transactions;
