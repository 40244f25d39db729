//! Locks for threads, and for a `main` without an async runtime.
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::blocking::LockManager;
//!
//! # fn main() -> Result<(), lock_runtime::LockError> {
//! let locks = LockManager::connect("memory://")?; // or "redis://127.0.0.1/"
//!
//! let guard = locks.mutex("report:daily").wait(Duration::from_secs(5)).acquire()?;
//! println!("token {:?}, {:?} left", guard.fencing_token(), guard.remaining());
//! guard.release()?;
//!
//! let token = locks.mutex("report:daily").run(|lease| lease.fencing_token())?;
//! # assert!(token.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! It is a thin layer around the async library: the same requests, leases, renewals and errors. Three things are
//! different.
//!
//! - **A closure that runs cannot be dropped.** When the lock of a [`run`](Request::run) is lost, the closure goes on to
//!   its end: let it ask [`Lease::is_held`](crate::Lease::is_held) between its steps, and check the fencing token where
//!   it writes. [`run_outcome`](Request::run_outcome) tells of the loss.
//! - **Dropping a guard waits** for the store's answer, as [`release`](LockGuard::release) does, for the call timeout at
//!   most. Once the store has answered, the lock is free.
//! - **Calls belong on threads of your own.** On a thread that is inside an async runtime they are refused with
//!   [`LockError::InvalidConfig`](crate::LockError::InvalidConfig): they would hold up its tasks, the holder of the lock
//!   perhaps among them. That includes threads of `spawn_blocking`: use `Handle::block_on` with the async manager there.
//!
//! Re-entry is that of the async library, with the closure in the place of the future: a request made inside the closure
//! of [`run`](Request::run) or [`scope`](LockGuard::scope), on the same thread, shares the hold. A guard by itself makes
//! nothing nested: a request for its lock waits for it, even on the same thread, and ends with
//! [`LockError::Busy`](crate::LockError::Busy).

mod guard;
mod ids;
mod manager;
mod request;
mod runtime;
mod semaphore;

pub use guard::LockGuard;
pub use ids::Ids;
pub use manager::LockManager;
pub use request::{LockRequest, MultiRequest, Request};
pub use semaphore::Semaphore;
