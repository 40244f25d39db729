//! Locks of a caller's own transaction.

use std::time::Duration;

use crate::backend::postgres::listen::topic;
use crate::backend::postgres::statements::Arg;
use crate::backend::postgres::{Inner, PostgresBackend, faults};
use crate::backend::{HoldRef, Reply, Transactions};

/// The name, the holder, and what those who wait are told by, if they are.
fn params(inner: &Inner, hold_ref: HoldRef<'_>) -> [String; 3] {
    let topic = match inner.target.notify {
        true => topic(hold_ref.key),
        false => String::new(),
    };
    [hold_ref.key.raw().to_owned(), hold_ref.holder.text(), topic]
}

impl Transactions for PostgresBackend {
    fn give(&self, hold_ref: HoldRef<'_>) -> (&str, [String; 3]) {
        let inner = &self.inner;
        let text = &inner.statements.give_to_transaction.text;
        (text, params(inner, hold_ref))
    }

    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let inner = &self.inner;
            let args = params(inner, hold_ref).map(Arg::Text).into();
            let row = inner
                .ask(&inner.statements.take_back, args, timeout)
                .await?;
            let row = row.ok_or_else(faults::malformed)?;
            row.try_get(0).map_err(|error| faults::unreadable(&error))
        })
    }
}
