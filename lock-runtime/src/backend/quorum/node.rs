//! One store of a quorum: when it counts as down although it answers, and when its answer is not waited for.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Fault};
use crate::sync::Mutex;
use crate::values::{Moment, Ttl, clock};

/// The time for which a vote is awaited that is not needed any more.
pub(super) const LATE_VOTE_WAIT: Duration = Duration::from_millis(50);

/// A function that returns the time for which a store has kept what it was given, at least. It returns `None` while
/// that is not known, because the store was never reached.
pub(crate) type Age = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

pub(crate) struct Node {
    pub(super) backend: Arc<dyn Backend>,
    /// The node's name in errors.
    pub(super) shown: String,
    /// `None` for a store that cannot restart without ending this process.
    age: Option<Age>,
    /// The time since which it has been used.
    pub(super) began: Moment,
    /// The time of the first request for a vote since its last answer; `None` if there was none.
    asked_at: Mutex<Option<Moment>>,
}

impl Node {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        shown: impl Into<String>,
        age: Option<Age>,
    ) -> Node {
        Node {
            backend,
            shown: shown.into(),
            age,
            began: clock::now(),
            asked_at: Mutex::default(),
        }
    }

    /// Notes that the node is asked for a vote.
    pub(super) fn is_asked(&self) {
        self.asked_at.lock().get_or_insert_with(clock::now);
    }

    /// Notes that the node has answered, whatever the answer was.
    pub(super) fn has_answered(&self) {
        *self.asked_at.lock() = None;
    }

    /// Returns `true` if the node has owed a vote for so long that the next one is not worth waiting for.
    pub(super) fn is_silent(&self) -> bool {
        self.asked_at
            .lock()
            .is_some_and(|at| at.elapsed() > LATE_VOTE_WAIT)
    }

    /// Returns the reason why the node may not grant anything, if there is one: it restarted a short while ago.
    /// Somebody may still believe in a hold that the node had granted and has forgotten, and with its vote a second
    /// hold would have a majority, too. After the longest lease, no such hold can be left.
    pub(super) fn is_down(&self, longest: Ttl) -> Option<Fault> {
        let age = self.age.as_ref()?()?;
        let left = longest.distrusted(age)?;
        Some(Fault::not_done(format!(
            "the node restarted and may have lost what it held: it counts as down for another {left:.0?}"
        )))
    }
}
