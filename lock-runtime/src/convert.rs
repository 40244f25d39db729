//! How a protected function reports that it did not run, or did not finish.

use crate::error::LockError;

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
