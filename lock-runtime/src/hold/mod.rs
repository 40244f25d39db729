//! A hold: what is known of a lock that this process has, and who shares it.

pub(crate) mod call_chain;
pub(crate) mod core;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod keeping;
pub(crate) mod lifecycle;
mod loss;
pub(crate) mod runtimes;
pub(crate) mod sharing;
pub(crate) mod state;
pub(crate) mod tenure;
