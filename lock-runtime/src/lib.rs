//! Distributed locks for async Rust.

mod backend;
mod clock;
mod convert;
mod core;
mod error;
mod fence;
mod gate;
mod guard;
mod hold;
mod holder;
mod info;
mod key;
mod lifecycle;
mod lineage;
mod manager;
mod name;
mod observe;
mod options;
mod pace;
mod private;
mod release;
mod request;
mod scope;
mod term;
mod view;
mod wait;
mod watchdog;

pub use backend::memory::MemoryStore;
pub use convert::FromLockError;
pub use error::{LockError, LostReason, StoreError};
pub use fence::FencingToken;
pub use guard::LockGuard;
pub use info::{HolderInfo, LockInfo};
#[cfg(feature = "macros")]
pub use lock_macros::{distributed_lock, key};
pub use manager::LockManager;
pub use name::{KeyPart, LockName};
pub use options::LockManagerBuilder;
pub use request::LockRequest;
pub use scope::{Outcome, Protect, Scope};
pub use view::{Lease, Lost};

#[doc(hidden)]
pub mod __private {
    pub use crate::private::*;
}
