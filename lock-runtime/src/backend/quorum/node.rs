//! One store of a quorum, and when it counts as down although it answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::not_done;
use crate::backend::{Backend, Fault};
use crate::term::Term;

/// For how long at least a store has kept what it was given; `None` while that is not known because it was never
/// reached.
pub(crate) type Age = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

pub(crate) struct Node {
    pub(super) backend: Arc<dyn Backend>,
    /// How errors call it.
    pub(super) shown: String,
    /// `None` for a store that cannot restart without ending this process.
    age: Option<Age>,
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
        }
    }

    /// Why the node may not grant anything, if so. It restarted a short while ago: a hold that it had granted and
    /// forgotten may still be believed in, and with its vote a second one would have a majority, too. Behind the
    /// longest lease nothing of that can be left.
    pub(super) fn is_down(&self, longest: Term) -> Option<Fault> {
        let age = self.age.as_ref()?()?;
        let left = longest.distrusted(age)?;
        Some(not_done(format!(
            "the node restarted and may have lost what it held: it counts as down for another {left:.0?}"
        )))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
