//! What the public API does, on the memory store.
#![allow(missing_docs)]

mod ancestors;
mod budget;
#[cfg(feature = "test-util")]
mod election;
mod lineage;
mod memory;
mod protect;
mod runtimes;
#[cfg(feature = "serde")]
mod snapshot;
#[cfg(feature = "test-util")]
mod test_util;
mod unlocked;
