//! An error of each kind, for tests of code that answers to errors. The arguments are the fields of the variant.
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::{LockError, test_util::error};
//!
//! fn status(error: &LockError) -> u16 {
//!     match error {
//!         LockError::Busy { .. } => 423,
//!         error if error.is_retryable() => 503,
//!         _ => 500,
//!     }
//! }
//!
//! assert_eq!(status(&error::busy("order:7", Duration::ZERO, None)), 423);
//! assert_eq!(status(&error::unavailable("order:7", "connection reset")), 503);
//! // What is not foreseen is a server error.
//! assert!(error::one_of_each("order:7").iter().all(|error| (400..600).contains(&status(error))));
//! ```

use std::time::Duration;

use crate::values::{LockError, LostReason, ShutdownCause, StoreError, WaiterCap, config};

/// Returns [`LockError::Busy`].
pub fn busy(name: impl Into<String>, waited: Duration, retry_after: Option<Duration>) -> LockError {
    LockError::Busy {
        name: name.into(),
        waited,
        retry_after,
        held_here: None,
    }
}

/// Returns [`LockError::Lost`].
pub fn lost(
    name: impl Into<String>,
    held_for: Duration,
    reason: LostReason,
    completed: bool,
) -> LockError {
    LockError::Lost {
        name: name.into(),
        held_for,
        reason,
        completed,
    }
}

/// Returns [`LockError::Unavailable`].
pub fn unavailable(name: impl Into<String>, source: impl Into<String>) -> LockError {
    LockError::unavailable(&name.into(), source)
}

/// Returns [`LockError::Denied`].
pub fn denied(name: impl Into<String>, source: impl Into<String>) -> LockError {
    LockError::Denied {
        name: name.into(),
        source: StoreError::new(source),
    }
}

/// Returns [`LockError::InvalidName`].
pub fn invalid_name(name: impl Into<String>, why: impl Into<String>) -> LockError {
    LockError::InvalidName {
        name: name.into(),
        why: why.into(),
    }
}

/// Returns [`LockError::InvalidLease`].
pub fn invalid_lease(name: impl Into<String>, lease: Duration, why: &'static str) -> LockError {
    LockError::InvalidLease {
        name: name.into(),
        lease,
        why,
    }
}

/// Returns [`LockError::InvalidConfig`].
pub fn invalid_config(why: impl Into<String>) -> LockError {
    config(why)
}

/// Returns [`LockError::ForeignKey`].
pub fn foreign_key(key: impl Into<String>, why: impl Into<String>) -> LockError {
    LockError::ForeignKey {
        key: key.into(),
        why: why.into(),
    }
}

/// Returns [`LockError::NotSet`].
pub fn not_set(name: impl Into<String>) -> LockError {
    LockError::NotSet { name: name.into() }
}

/// Returns [`LockError::Upgrade`].
pub fn upgrade(name: impl Into<String>) -> LockError {
    LockError::Upgrade { name: name.into() }
}

/// Returns [`LockError::TooManyWaiters`].
pub fn too_many_waiters(name: impl Into<String>, limit: usize, cap: WaiterCap) -> LockError {
    LockError::TooManyWaiters {
        name: name.into(),
        limit,
        cap,
    }
}

/// Returns [`LockError::ShuttingDown`].
pub fn shutting_down(name: impl Into<String>, why: ShutdownCause) -> LockError {
    LockError::ShuttingDown {
        name: name.into(),
        why,
    }
}

/// Returns [`LockError::NotInstalled`].
pub fn not_installed() -> LockError {
    LockError::NotInstalled
}

/// Returns one error of each variant, about `name` if the variant is about a name, for a test that looks at all of
/// them.
pub fn one_of_each(name: &str) -> Vec<LockError> {
    let second = Duration::from_secs(1);
    vec![
        busy(name, second, Some(second)),
        lost(name, second, LostReason::Expired, false),
        unavailable(name, "no answer"),
        denied(name, "no permission"),
        invalid_name(name, "too long"),
        invalid_lease(name, Duration::ZERO, "a lease has 50 ms at least"),
        invalid_config("an option is out of its bounds"),
        foreign_key(name, "it holds a string"),
        not_set(name),
        upgrade(name),
        too_many_waiters(name, 1, WaiterCap::PerKey),
        shutting_down(name, ShutdownCause::Shutdown),
        not_installed(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_error_of_each_variant() {
        // A new variant does not compile here until it has a number; its constructor then has to be in the list.
        let number = |error: &LockError| match error {
            LockError::Busy { .. } => 0,
            LockError::Lost { .. } => 1,
            LockError::Unavailable { .. } => 2,
            LockError::Denied { .. } => 3,
            LockError::InvalidName { .. } => 4,
            LockError::InvalidLease { .. } => 5,
            LockError::InvalidConfig { .. } => 6,
            LockError::ForeignKey { .. } => 7,
            LockError::NotSet { .. } => 8,
            LockError::Upgrade { .. } => 9,
            LockError::TooManyWaiters { .. } => 10,
            LockError::ShuttingDown { .. } => 11,
            LockError::NotInstalled => 12,
        };
        let numbers: Vec<_> = one_of_each("order:7").iter().map(number).collect();
        assert_eq!(numbers, (0..=12).collect::<Vec<_>>());
    }
}
