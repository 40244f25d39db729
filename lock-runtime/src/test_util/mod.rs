//! Tools for tests of code that takes locks: a store that answers as it is told, an error of each kind, and assertions
//! on who holds what.
//!
//! [`in_memory`] makes a manager on a memory store, and a [`TestControl`] over it. Pass the manager to the program that
//! expects one; the control says what goes wrong.
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::{LockError, test_util::{self, Answer}};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), LockError> {
//! let (locks, control) = test_util::in_memory();
//! control.next_acquire(Answer::Busy { retry_after: None });
//! let wait = Duration::from_secs(5);
//! let refused = locks.mutex("report").wait(wait).acquire().await;
//! assert!(refused.is_err_and(|error| error.is_busy()));
//!
//! let guard = locks.mutex("report").acquire().await?;
//! control.assert_held("report").await;
//! guard.release().await?;
//! control.assert_free("report").await;
//! # Ok(())
//! # }
//! ```
//!
//! [The chapter on testing](crate::_documentation::testing) has more of it.

mod assertions;
mod backend;
mod control;
pub mod error;
mod script;

pub use self::assertions::{assert_free, assert_held};
pub use self::control::TestControl;
pub use self::script::Answer;

use std::time::Duration;

use self::backend::ScriptedBackend;
use crate::api::builder::LockManagerBuilder;
use crate::api::manager::LockManager;
use crate::values::LockError;

/// Creates a manager on a new memory store, with default options, and the control over it.
pub fn in_memory() -> (LockManager, TestControl) {
    // The default options are in their bounds.
    of(LockManager::builder()).expect("the default options are accepted")
}

/// Does the same as [`LockManagerBuilder::in_memory`], with a control over the manager. Each manager has a control of
/// its own, which tells it apart from others on the same [`MemoryStore`](crate::MemoryStore).
///
/// # Errors
/// The same as [`LockManagerBuilder::in_memory`].
pub fn of(builder: LockManagerBuilder) -> Result<(LockManager, TestControl), LockError> {
    let (locks, backend) = builder.in_memory_as(ScriptedBackend::new)?;
    let control = TestControl::new(locks.clone(), backend);
    Ok((locks, control))
}

impl LockManagerBuilder {
    /// Sets how long a waiter sleeps at most before it asks the store again though nobody told it of a release. Default
    /// 1 s, give or take a fifth. A test that sets an hour proves that a message woke its waiter, without a look at the
    /// clock. On stores without messages it has no effect.
    pub fn longest_nap(mut self, nap: Duration) -> Self {
        self.options.longest_nap = nap;
        self
    }
}
