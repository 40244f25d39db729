//! Distributed locks for async Rust.
#![allow(dead_code)]

mod backend;
mod clock;
mod error;
mod fence;
mod holder;
mod key;
mod name;
mod term;

pub use error::{LockError, LostReason, StoreError};
pub use fence::FencingToken;
pub use name::{KeyPart, LockName};
