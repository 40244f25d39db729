//! Mistakes that the types rule out. Each example must not compile.
//!
//! A guard is released once:
//!
//! ```compile_fail,E0382
//! # async fn example(guard: lock_runtime::LockGuard) -> Result<(), lock_runtime::LockError> {
//! guard.release().await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! A guard cannot be used after its release:
//!
//! ```compile_fail,E0382
//! # async fn example(guard: lock_runtime::LockGuard) -> Result<(), lock_runtime::LockError> {
//! guard.release().await?;
//! guard.is_held();
//! # Ok(()) }
//! ```
//!
//! Nobody but the guard can release, so neither can somebody who does not hold the lock: the view
//! of a hold that a body gets has no such method, and a guard cannot be cloned.
//!
//! ```compile_fail,E0599
//! # async fn example(lease: lock_runtime::Lease) {
//! lease.release().await;
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # fn example(guard: &lock_runtime::LockGuard) {
//! let second: lock_runtime::LockGuard = guard.clone();
//! # }
//! ```
