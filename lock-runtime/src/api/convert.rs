//! How a protected function reports that it did not run, or did not finish.

use crate::observe;
use crate::values::error::LockError;

/// A return type that a [`LockError`] can become. Implemented for `Result<T, E>` where `E: From<LockError>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot report that the lock was busy or lost",
    label = "this return type has no place for a `LockError`",
    note = "return `Result<T, E>` where `E: From<lock_runtime::LockError>`",
    note = "or implement `lock_runtime::FromLockError` for a return type of your own",
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
/// A trait of its own, so that an outage cannot look like "skipped":
///
/// | return type | busy | any other failure |
/// |---|---|---|
/// | `Result<Option<T>, E>` | `Ok(None)` | `Err(E::from(error))` |
/// | `Result<(), E>` | `Ok(())` | `Err(E::from(error))` |
/// | `Option<T>` | `None` | `None`, and an event at level ERROR |
/// | `()` | `()` | `()`, and an event at level ERROR |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the function was skipped",
    label = "`on_busy = skip` needs another return type",
    note = "return `Result<Option<T>, E>` or `Result<(), E>` where `E: From<lock_runtime::LockError>`, or `Option<T>`, or nothing",
    note = "or implement `lock_runtime::Skipped` for a return type of your own"
)]
pub trait Skipped {
    /// What the function returns when the lock was busy and its body did not run.
    fn skipped() -> Self;

    /// What the function returns when its body did not run, or not to its end, for any other reason.
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
