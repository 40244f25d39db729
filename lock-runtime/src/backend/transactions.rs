//! What a store must be able to do whose locks a transaction of the caller's can have.

use std::time::Duration;

use super::{HoldRef, Reply};

/// What [`Transactions::give`] answers if the transaction has the lock.
pub(crate) const GIVEN: &str = "given";
/// What it answers if the transaction sees nothing that is newer than its beginning.
pub(crate) const TOO_EARLY: &str = "too early";

/// What a transaction runs to take over what is held.
pub(crate) struct Give<'a> {
    /// It answers [`GIVEN`], [`TOO_EARLY`], or something else if nothing is held; with no row if that is so, or somebody's
    /// statement has locked the row at this moment.
    pub(crate) take: &'a str,
    /// What is to be run after [`GIVEN`]. It has no answer, and cannot find that somebody else was faster.
    pub(crate) then: Option<&'a str>,
    /// Of each of them.
    pub(crate) params: Vec<String>,
}

/// Locks of transactions.
pub(crate) trait Transactions: Send + Sync {
    /// How a transaction takes over what is held. After a commit the lock is free. After a rollback it is held as before.
    fn give(&self, hold_ref: HoldRef<'_>) -> Give<'_>;

    /// Gives back what a transaction was given, if it was rolled back, and wakes a waiter. True if it is still open.
    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool>;
}
