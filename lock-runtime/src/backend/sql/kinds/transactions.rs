//! Locks of a caller's own transaction.

use std::time::Duration;

use crate::backend::sql::{Arg, SqlBackend, malformed, topic};
use crate::backend::{Give, HoldRef, Reply, Transactions};
use crate::values::clock;

impl SqlBackend {
    /// Returns the name, the holder and the topic of the waiters. The topic is empty if releases notify nobody.
    fn params(&self, hold_ref: HoldRef<'_>) -> [String; 3] {
        let topic = if self.inner.notifies {
            topic(hold_ref.key)
        } else {
            String::new()
        };
        [hold_ref.key.raw().to_owned(), hold_ref.holder.text(), topic]
    }
}

impl Transactions for SqlBackend {
    fn give(&self, hold_ref: HoldRef<'_>) -> Give {
        let take = &self.inner.statements.give_to_transaction;
        self.inner.database.give(take, self.params(hold_ref))
    }

    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let args = self.params(hold_ref).map(Arg::Text).into();
            let take_back = &self.inner.statements.take_back;
            let asked = self.inner.ask(take_back, args, clock::now() + timeout);
            asked.await?.ok_or_else(malformed)?.flag(0)
        })
    }
}
