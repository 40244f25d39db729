//! Locks of a caller's own transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::sql::{Arg, SqlShared, Statement, malformed, topic};
use crate::backend::{Give, HoldRef, Reply, Transactions};
use crate::values::clock;

/// The statements of a database whose transactions can have locks.
pub(in crate::backend) struct OfTransactions {
    /// The function that makes the text of a statement that is sent now.
    pub(in crate::backend) fill: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// The statement to run in the transaction. `then` runs there, too, if there is more to do.
    pub(in crate::backend) give: Arc<Statement>,
    pub(in crate::backend) then: Option<Arc<Statement>>,
    /// The function that makes the parameters of these two from the name, the holder and the topic of the waiters.
    pub(in crate::backend) params: fn([String; 3]) -> Vec<String>,
    pub(in crate::backend) take_back: Arc<Statement>,
}

/// These statements, and the backend to ask.
pub(in crate::backend::sql) struct InTransactions {
    pub(in crate::backend::sql) inner: Arc<SqlShared>,
    pub(in crate::backend::sql) statements: OfTransactions,
}

impl InTransactions {
    /// Returns the name, the holder and the topic of the waiters. The topic is empty if releases notify nobody.
    fn params(&self, hold_ref: HoldRef<'_>) -> [String; 3] {
        let topic = if self.inner.database.notifies() {
            topic(hold_ref.key)
        } else {
            String::new()
        };
        [hold_ref.key.raw().to_owned(), hold_ref.holder.text(), topic]
    }
}

impl Transactions for InTransactions {
    fn give(&self, hold_ref: HoldRef<'_>) -> Give {
        let statements = &self.statements;
        let (fill, then) = (&statements.fill, statements.then.as_ref());
        Give {
            take: fill(&statements.give.text),
            then: then.map(|then| fill(&then.text)),
            params: (statements.params)(self.params(hold_ref)),
        }
    }

    fn take_back<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let args = self.params(hold_ref).map(Arg::Text).into();
            let asked = self
                .inner
                .ask(&self.statements.take_back, args, clock::now() + timeout);
            asked.await?.ok_or_else(malformed)?.flag(0)
        })
    }
}
