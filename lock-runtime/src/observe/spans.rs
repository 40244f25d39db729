//! The two spans of a lock, `lock.wait` and `lock.hold`, with the counts and the events of their ends. Both have the
//! level DEBUG, and are children of the span that their caller is in. Code that runs under a lock is not in its span.

use tracing::Span;
use tracing::field::Empty;

use crate::hold::Hold;
use crate::observe::metrics::{self, apart, logged};
use crate::values::{Key, Label, LockError, Moment, clock};

/// A request for a lock that is under way. If it is dropped without an outcome, its caller cancelled it. Every caller
/// that waits carries it, so it borrows from the request.
pub(crate) struct Wait<'a> {
    key: &'a Key,
    label: &'a Label,
    since: &'a Moment,
    span: Option<Box<Span>>,
    is_over: bool,
}

impl<'a> Wait<'a> {
    pub(crate) fn began(key: &'a Key, label: &'a Label, since: &'a Moment) -> Wait<'a> {
        metrics::asking(*label, key.kind());
        let span = tracing::debug_span!(
            "lock.wait",
            lock = key.name(),
            template = label.lock,
            kind = key.kind().name(),
            store = label.store,
            outcome = Empty,
        );
        Wait {
            key,
            label,
            since,
            span: taken(span),
            is_over: false,
        }
    }

    /// Notes the outcome and its moment. `true`: the lock was granted.
    pub(crate) fn came_to(mut self, outcome: Result<bool, &LockError>, at: Moment) {
        let outcome = match outcome {
            Ok(true) => "acquired",
            Ok(false) | Err(LockError::Busy { .. }) => "busy",
            Err(LockError::Unavailable { .. }) => "unavailable",
            Err(LockError::Denied { .. }) => "denied",
            Err(LockError::Lost { .. }) => "lost",
            Err(LockError::TooManyWaiters { .. }) => "overloaded",
            Err(LockError::ShuttingDown { .. }) => "shutting_down",
            Err(_) => "invalid",
        };
        self.end(outcome, at);
    }

    /// The caller's own transaction failed, which says nothing about the store.
    pub(crate) fn failed_in_driver(mut self, at: Moment) {
        self.end("driver", at);
    }

    fn end(&mut self, outcome: &'static str, at: Moment) {
        self.is_over = true;
        let waited = at.since(*self.since);
        metrics::asked(*self.label, self.key.kind(), waited, outcome);
        let span = self.span.take().map_or_else(Span::none, |span| *span);
        let (lock, label) = (self.key.name(), self.label.lock);
        apart(|| {
            span.record("outcome", outcome);
            span.in_scope(|| logged!(debug, lock, label, ?waited, "lock {outcome}"));
        });
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end("cancelled", clock::now());
        }
    }
}

/// The span of a guard's hold, if a subscriber wants it.
pub(crate) fn hold(hold: &Hold) -> Option<Box<Span>> {
    let key = hold.key();
    let label = || hold.with_turn(|turn| turn.label);
    let span = tracing::debug_span!(
        "lock.hold",
        lock = key.name(),
        template = label().map(|label| label.lock),
        kind = key.kind().name(),
        store = label().map(|label| label.store),
        token = hold.token().map(|token| token.get()),
        outcome = Empty,
    );
    taken(span)
}

/// A hold has ended.
pub(crate) fn hold_ended(span: &Span, is_lost: bool) {
    apart(|| {
        span.record("outcome", if is_lost { "lost" } else { "released" });
    });
}

/// The span, if a subscriber wants it.
fn taken(span: Span) -> Option<Box<Span>> {
    (!span.is_disabled()).then(|| Box::new(span))
}
