//! The operations of a store whose locks can be held by a transaction of the caller.

use std::time::Duration;

use super::{HoldRef, Reply};

/// The answer of [`Transactions::give`] if the transaction holds the lock.
pub(crate) const GIVEN: &str = "given";
/// The answer if the transaction's snapshot is too old: it sees nothing newer than its own beginning.
pub(crate) const TOO_EARLY: &str = "too early";

/// The statements that a transaction runs to take over a hold.
pub(crate) struct Give {
    /// Answers [`GIVEN`] or [`TOO_EARLY`]. If nothing is held, it answers something else or no row. It also answers no
    /// row while another statement has the row locked.
    pub(crate) take: String,
    /// The statement to run after [`GIVEN`]. It has no answer, and no other transaction can make it fail.
    pub(crate) then: Option<String>,
    /// The parameters of each statement.
    pub(crate) params: Vec<String>,
}

/// Locks of transactions.
pub(crate) trait Transactions: Send + Sync {
    /// Returns the statements with which a transaction takes over a hold. After a commit the lock is free. After a
    /// rollback it is held as before.
    fn give(&self, hold_ref: HoldRef<'_>) -> Give;

    /// Releases a hold that was given to a transaction, if the transaction was rolled back, and wakes a waiter.
    /// Returns `true` if the transaction is still open.
    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool>;
}
