//! The two spans of a lock, `lock.wait` and `lock.hold`, with the counts and the events of their ends. Both are of the
//! level DEBUG, and children of the span that their caller is in. They are never entered: an end is what they tell.

use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use crate::hold::state::Hold;
use crate::observe::metrics;
use crate::values::clock::Moment;
use crate::values::error::LockError;
use crate::values::key::Key;
use crate::values::label::Label;

/// A request for a lock that is under way. Dropped without an outcome, it was cancelled by its caller.
pub(crate) struct Wait {
    key: Arc<Key>,
    label: Label,
    since: Moment,
    span: Span,
    is_over: bool,
}

impl Wait {
    pub(crate) fn began(key: &Arc<Key>, label: Label, since: Moment) -> Wait {
        metrics::asking(label);
        let span = tracing::debug_span!(
            "lock.wait",
            lock = key.name(),
            template = label.lock,
            kind = key.kind().name(),
            store = label.store,
            outcome = Empty,
        );
        Wait {
            key: key.clone(),
            label,
            since,
            span,
            is_over: false,
        }
    }

    /// What became of it: whether the lock was had.
    pub(crate) fn came_to(mut self, outcome: Result<bool, &LockError>) {
        self.end(match outcome {
            Ok(true) => "acquired",
            Ok(false) | Err(LockError::Busy { .. }) => "busy",
            Err(LockError::Unavailable { .. }) => "unavailable",
            Err(LockError::Denied { .. }) => "denied",
            Err(LockError::Lost { .. }) => "lost",
            Err(LockError::TooManyWaiters { .. }) => "overloaded",
            Err(LockError::ShuttingDown { .. }) => "shutting_down",
            Err(_) => "invalid",
        });
    }

    fn end(&mut self, outcome: &'static str) {
        self.is_over = true;
        let Wait {
            key,
            label,
            since,
            span,
            ..
        } = self;
        metrics::asked(*label, key.kind(), *since, outcome);
        span.record("outcome", outcome);
        let (lock, template) = (key.name(), label.lock);
        tracing::debug!(parent: &*span, lock, template, waited = ?since.elapsed(), "lock {outcome}");
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.is_over {
            self.end("cancelled");
        }
    }
}

/// The span of a guard's hold.
pub(crate) fn hold(hold: &Hold) -> Span {
    let (key, label) = (hold.key(), hold.label());
    tracing::debug_span!(
        "lock.hold",
        lock = key.name(),
        template = label.lock,
        kind = key.kind().name(),
        store = label.store,
        token = hold.token().map(|token| token.get()),
        outcome = Empty,
    )
}
