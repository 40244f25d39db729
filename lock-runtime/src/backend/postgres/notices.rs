//! Notices to waiters, as far as the server takes them. What a statement changes counts; its notice is only a hint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::observe::metrics::logged;
use crate::sync::Mutex;
use crate::values::{Moment, StoreError, clock};

/// The time for which no notice is sent after one was refused. A queue that is full may be read meanwhile.
const QUIET: Duration = Duration::from_secs(30);

/// The place of the function that sends a notice, in the text of a statement.
const PLACE: &str = "{notify}";
/// The function that takes the same arguments and sends nothing.
const NOTHING: &str = "concat";

/// Whether the server takes notices. The connectors of one manager share it.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The time until which no notice is sent.
    quiet_until: Mutex<Option<Moment>>,
    /// True since a notice was refused, until a statement with one has succeeded.
    refuses: AtomicBool,
    /// True once the log says that notices were refused.
    logged: AtomicBool,
}

impl Notices {
    /// Returns the text with the function that sends a notice, and `true` if that may be refused.
    pub(super) fn loud(&self, text: &str) -> (String, bool) {
        let quiet = self.quiet_until.lock();
        let is_loud = text.contains(PLACE) && quiet.is_none_or(|until| until.has_passed());
        if is_loud {
            (text.replace(PLACE, "pg_notify"), true)
        } else {
            (quietly(text), false)
        }
    }

    /// Does the same as [`loud`](Notices::loud), for a statement that a caller's transaction ends with. A notice that is
    /// refused would undo the transaction, so none is tried.
    pub(super) fn in_a_transaction(&self, text: &str) -> String {
        if self.refuses.load(Ordering::Relaxed) {
            quietly(text)
        } else {
            self.loud(text).0
        }
    }

    /// Notes that a statement with a notice has succeeded.
    pub(super) fn accepted(&self) {
        if self.refuses.load(Ordering::Relaxed) {
            self.refuses.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the server has refused a notice.
    pub(super) fn refused(&self, server: &str, why: &StoreError) {
        *self.quiet_until.lock() = Some(clock::now() + QUIET);
        self.refuses.store(true, Ordering::Relaxed);
        if !self.logged.swap(true, Ordering::Relaxed) {
            logged!(
                warn,
                "`{server}` refuses notices: {why}; those who wait are not told of releases, and ask again by themselves"
            );
        }
    }
}

/// Returns the text with a function that sends nothing.
pub(super) fn quietly(text: &str) -> String {
    text.replace(PLACE, NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transaction_tries_no_notice_until_one_was_accepted_again() {
        let notices = Notices::default();
        let is_loud = || notices.loud(PLACE).1;
        let in_a_transaction = || notices.in_a_transaction(PLACE) != NOTHING;
        assert!(is_loud() && in_a_transaction());
        notices.refused("server", &StoreError::new("no right"));
        assert!(!is_loud() && !in_a_transaction());
        tokio::time::advance(2 * QUIET).await;
        assert!(is_loud() && !in_a_transaction());
        notices.accepted();
        assert!(is_loud() && in_a_transaction());
    }
}
