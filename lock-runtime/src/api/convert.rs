//! The return types by which a protected function reports that it did not run, or did not finish.

use crate::observe;
use crate::values::LockError;

/// A return type that a [`LockError`] can become. It is implemented for `Result<T, E>` where `E: From<LockError>`.
///
/// ```
/// use lock_runtime::{FromLockError, LockError};
///
/// /// What a handler answers: a status and a text.
/// struct Answer(u16, String);
///
/// impl FromLockError for Answer {
///     fn from_lock_error(error: LockError) -> Answer {
///         let status = if error.is_retryable() { 503 } else { 500 };
///         Answer(status, error.to_string())
///     }
/// }
///
/// let answer = Answer::from_lock_error(LockError::NotInstalled);
/// assert_eq!(answer.0, 500);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot report that the lock was busy or lost",
    label = "this return type has no place for a `LockError`",
    note = "return `Result<T, E>` where `E: From<lock_runtime::LockError>`",
    note = "or implement `lock_runtime::FromLockError` for a return type of your own",
    note = "an error of another crate, such as `StatusCode`, needs `map_err = path`; a handler can return `Result<T, tower_lock::Refusal>`",
    note = "with `thiserror`: add a variant `#[error(transparent)] Lock(#[from] lock_runtime::LockError)` to the error"
)]
pub trait FromLockError {
    /// Makes the value that the function returns instead.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// A return type that can say "another one does it already", for `on_busy = skip`.
///
/// It is a trait of its own, so that an outage cannot look like "skipped":
///
/// | return type | busy | any other failure |
/// |---|---|---|
/// | `Result<Option<T>, E>` | `Ok(None)` | `Err(E::from(error))` |
/// | `Result<(), E>` | `Ok(())` | `Err(E::from(error))` |
/// | `Option<T>` | `None` | `None`, and an event at level ERROR |
/// | `()` | `()` | `()`, and an event at level ERROR |
///
/// You can implement it for a type of your own:
///
/// ```
/// use lock_runtime::{LockError, Skipped};
///
/// #[derive(Debug, PartialEq)]
/// enum Sync {
///     Done(u64),
///     DoneElsewhere,
///     Failed(String),
/// }
///
/// impl Skipped for Sync {
///     fn skipped() -> Sync {
///         Sync::DoneElsewhere
///     }
///
///     fn failed(error: LockError) -> Sync {
///         Sync::Failed(error.to_string())
///     }
/// }
///
/// assert_eq!(Sync::skipped(), Sync::DoneElsewhere);
/// # let _ = (Sync::Done(1), Sync::failed(LockError::NotInstalled));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the function was skipped",
    label = "`on_busy = skip` needs another return type",
    note = "return `Result<Option<T>, E>` or `Result<(), E>` where `E: From<lock_runtime::LockError>`, or `Option<T>`, or nothing",
    note = "or implement `lock_runtime::Skipped` for a return type of your own"
)]
pub trait Skipped {
    /// Returns the function's result when the lock was busy and its body did not run.
    fn skipped() -> Self;

    /// Returns the function's result when its body did not run, or not to its end, for any other reason.
    fn failed(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> Skipped for Result<Option<T>, E> {
    fn skipped() -> Self {
        Ok(None)
    }

    fn failed(error: LockError) -> Self {
        Err(error.into())
    }
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }

    fn failed(error: LockError) -> Self {
        Err(error.into())
    }
}

#[diagnostic::do_not_recommend]
impl<T> Skipped for Option<T> {
    fn skipped() -> Self {
        None
    }

    fn failed(error: LockError) -> Self {
        observe::did_not_run(&error);
        None
    }
}

impl Skipped for () {
    fn skipped() {}

    fn failed(error: LockError) {
        observe::did_not_run(&error);
    }
}
