//! One store of a quorum: when it counts as down although it answers, and when its answer is not waited for.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Fault};
use crate::sync::Mutex;
use crate::values::{Moment, Ttl, clock};

/// The time for which a vote is awaited that is not needed any more.
pub(super) const LATE_VOTE_WAIT: Duration = Duration::from_millis(50);

/// For how long at least a store has kept what it was given; `None` while that is not known because it was never
/// reached.
pub(crate) type Age = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

pub(crate) struct Node {
    pub(super) backend: Arc<dyn Backend>,
    /// The node's name in errors.
    pub(super) shown: String,
    /// `None` for a store that cannot restart without ending this process.
    age: Option<Age>,
    /// The time since which it has been used.
    pub(super) began: Moment,
    /// When it was first asked for a vote that it has not answered, nor any later one.
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

    /// It is asked for a vote.
    pub(super) fn is_asked(&self) {
        self.asked_at.lock().get_or_insert_with(clock::now);
    }

    /// It has answered, whatever that was.
    pub(super) fn has_answered(&self) {
        *self.asked_at.lock() = None;
    }

    /// Whether it owes votes for so long that the next one is not worth waiting for.
    pub(super) fn is_silent(&self) -> bool {
        self.asked_at
            .lock()
            .is_some_and(|at| at.elapsed() > LATE_VOTE_WAIT)
    }

    /// Why the node may not grant anything, if so. It restarted a short while ago: a hold that it had granted and
    /// forgotten may still be believed in, and with its vote a second one would have a majority, too. After the
    /// longest lease nothing of that can be left.
    pub(super) fn is_down(&self, longest: Ttl) -> Option<Fault> {
        let age = self.age.as_ref()?()?;
        let left = longest.distrusted(age)?;
        Some(Fault::not_done(format!(
            "the node restarted and may have lost what it held: it counts as down for another {left:.0?}"
        )))
    }
}
