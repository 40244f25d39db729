//! One store of a quorum: when it counts as down although it answers, and when its answer is not waited for.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Fault};
use crate::sync::Mutex;
use crate::values::{Moment, Ttl, clock};

/// The time to wait for a vote that is no longer needed.
pub(super) const LATE_VOTE_WAIT: Duration = Duration::from_millis(50);

/// A function that returns the time for which a store has kept what it was given, at least. It returns `None` while
/// that is not known, because the store was never reached, and for a store that cannot restart without ending this process.
pub(crate) type Age = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

/// The votes that a node has been asked for and has not given.
struct Owed {
    /// The number of votes that are awaited now.
    awaited: usize,
    /// The time since which votes are awaited without an answer, or were last.
    since: Moment,
    /// How long votes were awaited before `since`, after the node's last answer. The time between two votes does not
    /// count: a node that nobody asks is not silent.
    before: Duration,
}

impl Owed {
    fn time(&self) -> Duration {
        match self.awaited {
            0 => self.before,
            _ => self.before + self.since.elapsed(),
        }
    }
}

/// A vote that is awaited from a node. Dropping it ends the waiting without an answer.
pub(super) struct Awaited<'a>(&'a VotingNode);

impl Awaited<'_> {
    /// Notes that the node has answered, whatever the answer was.
    pub(super) fn answered(self) {
        let mut owed = self.0.owed.lock();
        (owed.since, owed.before) = (clock::now(), Duration::ZERO);
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut owed = self.0.owed.lock();
        (owed.before, owed.since) = (owed.time(), clock::now());
        owed.awaited -= 1;
    }
}

pub(crate) struct VotingNode {
    pub(super) backend: Arc<dyn Backend>,
    /// The node's name in errors.
    pub(super) shown: String,
    age: Age,
    /// The time since which it has been used.
    pub(super) began: Moment,
    owed: Mutex<Owed>,
}

impl VotingNode {
    pub(crate) fn new(backend: Arc<dyn Backend>, shown: impl Into<String>, age: Age) -> VotingNode {
        let began = clock::now();
        VotingNode {
            backend,
            shown: shown.into(),
            age,
            began,
            owed: Mutex::new(Owed {
                awaited: 0,
                since: began,
                before: Duration::ZERO,
            }),
        }
    }

    /// Notes that the node is asked for a vote.
    pub(super) fn is_asked(&self) -> Awaited<'_> {
        let mut owed = self.owed.lock();
        (owed.before, owed.since) = (owed.time(), clock::now());
        owed.awaited += 1;
        Awaited(self)
    }

    /// Returns `true` if the node has owed a vote for so long that the next one is not worth waiting for.
    pub(super) fn is_silent(&self) -> bool {
        self.owed.lock().time() > LATE_VOTE_WAIT
    }

    /// Returns the reason why the node may not grant anything, if there is one: it restarted a short while ago.
    /// Somebody may still believe in a hold that the node had granted and has forgotten, and with its vote a second
    /// hold would have a majority, too. After the longest lease, no such hold can be left.
    pub(super) fn is_down(&self, longest: Ttl) -> Option<Fault> {
        let age = (self.age)()?;
        let left = longest.distrusted(age)?;
        Some(Fault::not_done(format!(
            "the node restarted and may have lost what it held: it counts as down for another {left:.0?}"
        )))
    }
}
