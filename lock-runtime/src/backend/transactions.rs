//! What a store must be able to do whose locks a transaction of the caller's can have.

use std::time::Duration;

use super::{HoldRef, Reply};

/// What [`Transactions::give`] answers if the transaction has the lock.
pub(crate) const GIVEN: &str = "given";
/// What it answers if the transaction sees nothing that is newer than its beginning.
pub(crate) const TOO_EARLY: &str = "too early";

/// Locks of transactions.
pub(crate) trait Transactions: Send + Sync {
    /// The statement by which a transaction takes over what is held, and its parameters. It answers [`GIVEN`],
    /// [`TOO_EARLY`], or that nothing is held. After a commit the lock is free. After a rollback it is held as before.
    fn give(&self, hold_ref: HoldRef<'_>) -> (&str, [String; 3]);

    /// Gives back what a transaction was given, if it was rolled back, and wakes a waiter. True if it is still open.
    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool>;
}
