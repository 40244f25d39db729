//! What each kind of lock sends: keys, arguments, scripts, replies.

pub(crate) mod acquire;
pub(crate) mod acquire_all;
pub(crate) mod counter_scripts;
pub(crate) mod counters;
pub(crate) mod exclusive;
pub(crate) mod exclusive_scripts;
pub(crate) mod fair;
pub(crate) mod operator_scripts;
pub(crate) mod operators;
pub(crate) mod permit_scripts;
pub(crate) mod permits;
pub(crate) mod read_write;
pub(crate) mod read_write_scripts;
pub(crate) mod renewals;
