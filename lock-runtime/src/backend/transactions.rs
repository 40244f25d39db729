//! What a store must be able to do whose locks a transaction of the caller's can take.

use std::time::Duration;

use super::{AcquireRequest, Reply};
use crate::values::fence::FencingToken;
use crate::values::key::Key;

/// Locks of transactions. The caller's driver sends the statement, the store reads its answer.
pub(crate) trait Transactions: Send + Sync {
    /// The statement by which a transaction takes the lock, and its parameters.
    fn take(&self, key: &Key) -> (&str, Vec<String>);

    /// What came of it. If the lock is busy, and the caller goes on waiting, the store sees to it that it is told.
    fn answered<'a>(&'a self, request: AcquireRequest<'a>, answer: &'a str) -> Reply<'a, TakenBy>;
}

/// Who has a lock that a transaction asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TakenBy {
    /// The transaction.
    Asker(Option<FencingToken>),
    /// Somebody else; what is left of the lease, if it has one.
    Other { left: Option<Duration> },
    /// Nobody any more: the transaction asks again.
    Nobody,
}
